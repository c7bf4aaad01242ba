"""Pages for people, in HTML.

Law: templates escape all text, and Jinja2, which is an extra, is imported when a page is made; no page asks another host for
anything.
"""
