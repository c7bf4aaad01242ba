"""The dialect A2A 0.3, in the JSON of its JSON-RPC binding and in that of its HTTP+JSON binding.

Law: pure; a request becomes one of the model, and the model knows nothing of 0.3.
"""
