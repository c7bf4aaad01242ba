"""What rows of the ledger mean for operators: why a handle moved, what became of the one before, what is wrong now.

Law: pure; decides nothing for a turn, and only the pages and the health of agents use it. It says what the rows show, and no
more.
"""
