"""A small service on FastAPI: invoices go in, drafts of replies come out. See `docs/guides/fastapi.md`."""
