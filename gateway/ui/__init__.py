"""Pages for people, in HTML: at / what everybody may know, at /ui what the gateway holds.

Law: templates escape all text; Jinja2, which is an extra, is imported when a page is made, and no page asks another host for
anything. GET changes nothing; what is done for somebody else, and a look at what is theirs, has a line in the audit log.
"""
