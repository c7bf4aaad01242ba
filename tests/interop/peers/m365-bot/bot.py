"""A bot on Microsoft's 365 Agents SDK, anonymous, for the environment that .ci/peers.sh makes: `bot.py PORT`."""
# mypy: ignore-errors
# The packages it imports are absent from the project's environment on purpose.

import asyncio
import sys
from urllib.request import urlopen

from aiohttp.web import Application, Response, run_app
from microsoft_agents.activity import (
    ActionTypes,
    Activity,
    ActivityTypes,
    Attachment,
    CardAction,
    HeroCard,
    InputHints,
    OAuthCard,
    load_configuration_from_env,
)
from microsoft_agents.authentication.msal import MsalConnectionManager
from microsoft_agents.hosting.aiohttp import CloudAdapter, jwt_authorization_middleware, start_agent_process
from microsoft_agents.hosting.core import (
    AgentApplication,
    AgentAuthConfiguration,
    Authorization,
    CardFactory,
    MemoryStorage,
    MessageFactory,
    TurnContext,
    TurnState,
)

SETTINGS = "CONNECTIONS__SERVICE_CONNECTION__SETTINGS__"
SIGN_IN = "https://login.example/sign-in"

# All three are needed for a bot without credentials: this configuration, its Authorization, and the middleware below.
config = load_configuration_from_env(
    {f"{SETTINGS}ANONYMOUS_ALLOWED": "true", f"{SETTINGS}CLIENTID": "", f"{SETTINGS}AUTHTYPE": "Anonymous"}
)
connections = MsalConnectionManager(**config)
adapter, storage = CloudAdapter(connection_manager=connections), MemoryStorage()
agent = AgentApplication[TurnState](
    storage=storage, adapter=adapter, authorization=Authorization(storage, connections, **config), **config
)
HEARD = {}
"""The number of messages of each conversation."""


@agent.activity("message")
async def on_message(context: TurnContext, state: TurnState):
    activity = context.activity
    text = activity.text or ""
    HEARD[activity.conversation.id] = HEARD.get(activity.conversation.id, 0) + 1
    for word, say in WORDS.items():
        if word in text:
            await say(context)
            return
    if activity.value is not None:
        await context.send_activity(f"you chose {activity.value}")
    elif activity.attachments:
        await context.send_activity(" ".join(map(described, activity.attachments)))
    else:
        await context.send_activity(f"{HEARD[activity.conversation.id]}: {text}")


def described(attachment):
    content = b""
    if attachment.content_url.startswith("http://127.0.0.1"):
        with urlopen(attachment.content_url) as response:
            content = response.read()
    return f"{attachment.name} ({attachment.content_type}) {content.decode()}"


async def stream(context):
    response = context.streaming_response
    response.queue_informative_update("thinking")
    for number in range(4):
        response.queue_text_chunk(f"part{number} ")
        await asyncio.sleep(0.3)
    await response.end_stream()


async def several(context):
    await context.send_activity(MessageFactory.text("one", input_hint=InputHints.ignoring_input))
    await context.send_activity("two")


async def suggest(context):
    actions = [CardAction(type=ActionTypes.im_back, title=each, value=each.lower()) for each in ("Red", "Blue")]
    await context.send_activity(MessageFactory.suggested_actions(actions, "Which colour?"))


async def hero(context):
    buttons = [CardAction(type=ActionTypes.post_back, title="Pay", value={"pay": True})]
    await context.send_activity(
        MessageFactory.attachment(CardFactory.hero_card(HeroCard(title="Order 7", text="12 EUR", buttons=buttons)))
    )


async def sign_in(context):
    buttons = [CardAction(type=ActionTypes.signin, title="Sign in", value=SIGN_IN)]
    card = OAuthCard(text="Please sign in", connection_name="mail", buttons=buttons)
    await context.send_activity(MessageFactory.attachment(CardFactory.oauth_card(card)))


async def picture(context):
    attachment = Attachment(content_type="image/png", content_url="data:image/png;base64,aGVsbG8=", name="a.png")
    await context.send_activity(MessageFactory.attachment(attachment, "here"))


async def goodbye(context):
    await context.send_activity("Bye.")
    await context.send_activity(Activity(type=ActivityTypes.end_of_conversation, code="completedSuccessfully"))


WORDS = {
    "stream": stream,
    "several": several,
    "suggest": suggest,
    "hero": hero,
    "sign in": sign_in,
    "picture": picture,
    "goodbye": goodbye,
}


async def messages(request):
    return await start_agent_process(request, agent, adapter)


async def ready(_):
    return Response(text="ready")


web = Application(middlewares=[jwt_authorization_middleware])
web.router.add_post("/api/messages", messages)
web.router.add_get("/ready", ready)
web["agent_configuration"] = AgentAuthConfiguration(anonymous_allowed=True)
web["agent_app"], web["adapter"] = agent, adapter
run_app(web, host="127.0.0.1", port=int(sys.argv[1]))
