"""`type: dify`: chat apps of Dify (Chatbot, Agent, New Agent, Chatflow) behind A2A Gateway."""
