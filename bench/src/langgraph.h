/* The part of mockllm that is a LangGraph Agent Server: threads, a run on the wire, and what the server says of both afterwards.
 * Members and sizes are those of langgraph-api 0.16.7 with an agent of langchain 1.5.2; a run has ended when its stream has.
 */
#define ASSISTANT "fe096781-5601-53d2-b2f6-0d3403f7e9ca"
#define RUN_ID "01a21411-ad59-7309-bb73-%012lx"
#define REPLY_ID "lc_run--01a21411-b017-7286-8283-%012lx"
#define AT "2026-11-25T18:57:12.505262+00:00"
#define ORIGIN "\"created_by\":\"system\",\"graph_id\":\"agent\",\"assistant_id\":\"" ASSISTANT "\""
#define ATTEMPT "\"run_attempt\":1,\"langgraph_version\":\"1.2.24\",\"langgraph_api_version\":\"0.16.7\",\"langgraph_plan\":\"enterprise\"," \
                "\"langgraph_host\":\"self-hosted\",\"langgraph_api_url\":\"http://127.0.0.1:9100\""

/* The threads, by name; `messages` is what a JSON array has between its brackets. */
typedef struct thread { char id[64]; buf messages; struct thread *next; } thread;
static thread *threads[1 << 14];
static thread *thread_of(const char *id, size_t n, bool make) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)id[i]) * 16777619u;
    thread **at = &threads[h & ((1 << 14) - 1)];
    for (thread *t = *at; t; t = t->next) if (strlen(t->id) == n && !memcmp(t->id, id, n)) return t;
    if (!make) return NULL;
    thread *t = calloc(1, sizeof *t);
    snprintf(t->id, sizeof t->id, "%.*s", (int)n, id);
    t->next = *at;
    return *at = t;
}

static void lg_event(conn *c, const char *name) { chunk_open(c); buf_fmt(&c->out, "event: %s\r\ndata: ", name); }
static void lg_end(conn *c) { buf_fmt(&c->out, "\r\nid: 1795633033268-%ld\r\n\r\n", c->seq++); chunk_end(c); }
/* The members of an AIMessageChunk behind its content, and the place of the model in the graph. */
static void lg_rest(conn *c, const char *metadata, const char *usage, const char *position) {
    buf_fmt(&c->out, "\",\"additional_kwargs\":{},\"response_metadata\":%s,\"type\":\"AIMessageChunk\",\"name\":null,\"id\":\"" REPLY_ID "\","
            "\"tool_calls\":[],\"invalid_tool_calls\":[],\"usage_metadata\":%s,\"tool_call_chunks\":[],\"chunk_position\":%s},"
            "{\"ls_integration\":\"langchain_chat_model\"," ORIGIN "," ATTEMPT ",\"run_id\":\"" RUN_ID "\",\"thread_id\":\"%s\","
            "\"langgraph_step\":1,\"langgraph_node\":\"model\",\"langgraph_triggers\":[\"branch:to:model\"],\"langgraph_path\":[\"__pregel_pull\",\"model\"],"
            "\"langgraph_checkpoint_ns\":\"model:a607a459-f39d-fd3d-6f5d-%012lx\",\"checkpoint_ns\":\"model:a607a459-f39d-fd3d-6f5d-%012lx\","
            "\"ls_provider\":\"mock\",\"ls_model_type\":\"chat\",\"lc_versions\":{\"langchain-core\":\"1.8.3\",\"langchain\":\"1.5.2\"}}]",
            metadata, c->rid, usage, position, c->rid, c->ctx, c->rid, c->rid);
}
static bool step_langgraph(conn *c) {
    buf *o = &c->out;
    long s = c->step++;
    if (s == 0) {
        lg_event(c, "metadata");
        buf_fmt(o, "{\"run_id\":\"" RUN_ID "\",\"attempt\":1}", c->rid);
        lg_end(c);
        return true;
    }
    s--;
    if (s < c->pl.n) {
        if (s == c->pl.cut) { c->closing = true; return true; }
        size_t at = c->text.len;
        make_delta(c, s, &c->text);
        lg_event(c, "messages");
        buf_str(o, "[{\"content\":\"");
        buf_add(o, c->text.p + at, c->text.len - at);
        lg_rest(c, "{}", "null", "null");
        lg_end(c);
        return true;
    }
    char usage[96];
    snprintf(usage, sizeof usage, "{\"input_tokens\":10,\"output_tokens\":%ld,\"total_tokens\":%ld}", c->pl.n, 10 + c->pl.n);
    lg_event(c, "messages"), buf_str(o, "[{\"content\":\""), lg_rest(c, "{\"finish_reason\":\"stop\"}", usage, "null"), lg_end(c);
    lg_event(c, "messages"), buf_str(o, "[{\"content\":\""), lg_rest(c, "{}", "null", "\"last\""), lg_end(c);
    buf *m = &thread_of(c->ctx, strlen(c->ctx), true)->messages;
    if (m->len) buf_str(m, ",");
    size_t at = m->len;
    buf_str(m, "{\"content\":\"");
    buf_add(m, c->text.p ? c->text.p : "", c->text.len);
    buf_fmt(m, "\",\"additional_kwargs\":{},\"response_metadata\":{\"finish_reason\":\"stop\"},\"type\":\"ai\",\"name\":null,\"id\":\"" REPLY_ID "\","
            "\"tool_calls\":[],\"invalid_tool_calls\":[],\"usage_metadata\":%s}", c->rid, usage);
    if (c->updates) {
        lg_event(c, "updates");
        buf_str(o, "{\"model\":{\"messages\":[");
        buf_add(o, m->p + at, m->len - at);
        buf_str(o, "]}}");
        lg_end(c);
    }
    return false;
}
/* The head of a stream: it names the run. */
static void lg_head(conn *c) {
    buf_fmt(&c->out, "Location: /threads/%s/runs/" RUN_ID "/stream\r\nContent-Location: /threads/%s/runs/" RUN_ID "\r\n", c->ctx, c->rid, c->ctx, c->rid);
}
/* A run of this thread with the message in its body. */
static void lg_begin(conn *c, const char *path, const char *b, size_t n) {
    char id[128] = "null", text[512] = "\"\"";
    snprintf(c->ctx, sizeof c->ctx, "%.*s", (int)strcspn(path + 9, "/"), path + 9);
    json_at(b, n, 4, "id", id, sizeof id);
    json_at(b, n, 4, "content", text, sizeof text);
    buf *m = &thread_of(c->ctx, strlen(c->ctx), true)->messages;
    buf_fmt(m, "%s{\"content\":%s,\"additional_kwargs\":{},\"response_metadata\":{},\"type\":\"human\",\"name\":null,\"id\":%s}", m->len ? "," : "", text, id);
    c->stream = true;
    c->updates = find(b, n, "\"updates\"") != NULL;
}
/* Answers what is asked of threads, runs and assistants. */
static void lg_reply(conn *c, bool post, const char *path, const char *b, size_t n) {
    buf a = {0};
    char id[64] = "";
    const char *name = path + strlen("/threads/"), *run = strstr(path, "/runs/");
    if (post && !strcmp(path, "/assistants/search")) {
        buf_str(&a, "[{\"assistant_id\":\"" ASSISTANT "\",\"graph_id\":\"agent\",\"config\":{},\"context\":{},\"created_at\":\"" AT "\",\"updated_at\":\"" AT "\","
                "\"metadata\":{\"created_by\":\"system\"},\"version\":1,\"name\":\"agent\",\"description\":null}]");
    } else if (post) {
        if (!json_at(b, n, 1, "thread_id", id, sizeof id)) snprintf(id, sizeof id, "\"30067960-b329-49d8-8173-%012lx\"", next_id++);
        thread_of(id + 1, strlen(id) - 2, true);
        buf_fmt(&a, "{\"thread_id\":%s,\"created_at\":\"" AT "\",\"updated_at\":\"" AT "\",\"state_updated_at\":\"" AT "\",\"metadata\":{},"
                "\"status\":\"idle\",\"config\":{},\"values\":null}", id);
    } else if (run) {
        int k = run - name;
        buf_fmt(&a, "{\"run_id\":\"%s\",\"thread_id\":\"%.*s\",\"assistant_id\":\"" ASSISTANT "\",\"metadata\":{" ORIGIN "},\"status\":\"success\","
                "\"kwargs\":{\"input\":null,\"command\":null,\"config\":{\"configurable\":{\"langgraph_auth_user\":null,\"langgraph_auth_user_id\":\"\","
                "\"langgraph_auth_permissions\":[],\"__request_start_time_ms__\":1795633032536,\"__after_seconds__\":0,\"run_id\":\"%s\",\"thread_id\":\"%.*s\","
                "\"graph_id\":\"agent\",\"assistant_id\":\"" ASSISTANT "\",\"user_id\":\"\",\"__pregel_node_finished\":null},\"metadata\":{" ORIGIN "," ATTEMPT "}},"
                "\"context\":{},\"stream_mode\":[\"messages-tuple\"],\"interrupt_before\":null,\"interrupt_after\":null,\"webhook\":null,\"feedback_keys\":null,"
                "\"temporary\":false,\"subgraphs\":false,\"resumable\":true,\"checkpoint_during\":true,\"durability\":\"async\"},\"multitask_strategy\":\"reject\","
                "\"created_at\":\"" AT "\",\"updated_at\":\"" AT "\",\"langsmith_session_name\":null}", run + 6, k, name, run + 6, k, name);
    } else {
        thread *t = thread_of(name, strlen(name), false);
        if (!t) { reply(c, 404, "application/json", "{\"detail\":\"Thread not found\"}", 29); return; }
        buf_fmt(&a, "{\"thread_id\":\"%s\",\"created_at\":\"" AT "\",\"updated_at\":\"" AT "\",\"state_updated_at\":\"" AT "\","
                "\"metadata\":{\"graph_id\":\"agent\",\"assistant_id\":\"" ASSISTANT "\"},\"status\":\"idle\",\"config\":{\"configurable\":{}},\"values\":{\"messages\":[", t->id);
        buf_add(&a, t->messages.p ? t->messages.p : "", t->messages.len);
        buf_str(&a, "]},\"error\":null,\"interrupts\":{}}");
    }
    reply(c, 200, "application/json", a.p, a.len);
    buf_free(&a);
}
