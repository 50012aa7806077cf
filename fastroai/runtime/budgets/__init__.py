"""Money of a tree of scopes: the ledger, admission, reservations and charges."""
