"""What the pages for operators read of a ledger, over all principals of a tenant: records, and the port `AdminReads`.

Law: pure; only the pages, the health of agents (`app/agent_health`), what is derived for both (`core/diagnosis`) and stores
import this. Every read is bounded, in rows
and in characters, and says where it stopped.
"""
