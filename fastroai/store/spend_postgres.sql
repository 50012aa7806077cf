-- The rules of fastroai/usage/spend_rules.py, where PostgreSQL runs them as one statement: a function call.
-- Run once in a new schema, with the search path set to it; the functions remember that path.
-- Whatever calls them locks its account first, so that what happens to one account happens in one order.

CREATE TABLE IF NOT EXISTS spend_account (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_key text NOT NULL,
    time_window text NOT NULL,
    seen timestamptz NOT NULL,
    closes_at timestamptz NOT NULL,
    spent_usd numeric NOT NULL DEFAULT 0,
    reserved_usd numeric NOT NULL DEFAULT 0,
    UNIQUE (account_key, time_window)
) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS spend_account_closed ON spend_account (closes_at);

CREATE TABLE IF NOT EXISTS spend_claim (
    account_id bigint NOT NULL REFERENCES spend_account ON DELETE CASCADE,
    id text NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    state text NOT NULL,
    amount_usd numeric NOT NULL,
    lease_until timestamptz NOT NULL,
    closes_at timestamptz,
    PRIMARY KEY (account_id, id)
);
CREATE INDEX IF NOT EXISTS spend_claim_lease ON spend_claim (account_id, lease_until);
CREATE INDEX IF NOT EXISTS spend_claim_line ON spend_claim (account_id, place) WHERE state = 'waiting';
