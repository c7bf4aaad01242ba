"""The reads of the port `AdminReads`, on the queries of any store.

Law: a search goes from the latest row back, a chunk after another, and other reads come in between.
"""
