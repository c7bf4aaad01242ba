"""Services with Anthropic's Messages API: the conversation is the gateway's, and goes out whole with every request.

Law: an adapter translates; what the model has signed or encrypted goes back as it came, and to no other model.
"""
