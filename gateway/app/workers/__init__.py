"""Several processes on the ports of one gateway: the supervisor that starts and ends them, and what it says to each.

Law: the supervisor serves nothing and runs no code of an operator; workers share nothing but the ports and the ledger.
"""
