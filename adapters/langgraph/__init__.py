"""LangGraph Agent Server: threads, runs, interrupts.

Law: the server keeps the conversation in a thread and runs the tools; the end of a stream is not the end of a run.
"""
