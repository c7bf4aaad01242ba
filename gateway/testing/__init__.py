"""Conformance suites for plug-ins, shipped for third parties to subclass.

Law: drives a plug-in through its port only.
"""
