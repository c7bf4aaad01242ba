"""Tool calls: which tools exist, what needs an approval, what a caller is asked, what a result is.

Law: pure; each call ends with exactly one outcome.
"""
