#!/bin/sh
# Talks to an agent over HTTP+JSON with curl: its card, a whole answer, a stream, and the stream again from an event on.
#
#   sh examples/clients/curl.sh http://127.0.0.1:8080/a2a/trips "I go to Oslo"
set -eu
agent=$1
text=$(printf '%s' "$2" | sed 's/[\\"]/\\&/g')
message="{\"message\": {\"messageId\": \"$(date +%s)-$$\", \"role\": \"ROLE_USER\", \"parts\": [{\"text\": \"$text\"}]}}"
request() { curl --silent --show-error --fail-with-body -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' "$@"; }

echo '== the card'
request "$agent/.well-known/agent-card.json"
echo
echo '== a whole answer'
task=$(request "$agent/message:send" --data "$message") || { echo "$task" >&2; exit 1; }
echo "$task"
echo '== a stream'
request --no-buffer "$agent/message:stream" --data "$message"
echo '== the events of the first task again, after its first one; those of a task that waits for you do not end'
id=$(printf '%s' "$task" | sed 's/.*"task":{"id":"\([^"]*\)".*/\1/')
request --no-buffer --max-time 10 -H 'Last-Event-ID: 1' --request POST "$agent/tasks/$id:subscribe" || [ $? -eq 28 ]
