"""HTTP for every family of adapters: requests, event streams, errors, common settings.

Law: it knows no family's protocol; a family adds its headers and its words for errors.
"""
