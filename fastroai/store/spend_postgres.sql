-- The rules of fastroai/usage/spend_rules.py, where PostgreSQL runs them as one statement: a function call.
--
-- Run in a schema of their own, with the search path set to it, which the functions remember. Each of them
-- locks its account first, so what happens to one account happens in one order. A window of `total` closes at
-- infinity. A claim that waits has no `closes_at`, so that comparing it is never true.

CREATE TABLE spend_account (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_key text NOT NULL,
    time_window text NOT NULL,
    seen timestamptz NOT NULL,
    closes_at timestamptz NOT NULL,
    spent_usd numeric NOT NULL,
    reserved_usd numeric NOT NULL,
    UNIQUE (account_key, time_window)
) WITH (fillfactor = 50);
CREATE INDEX spend_account_closed ON spend_account (closes_at);

CREATE TABLE spend_claim (
    account_id bigint NOT NULL REFERENCES spend_account ON DELETE CASCADE,
    id text NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    state text NOT NULL,
    amount_usd numeric NOT NULL,
    lease_until timestamptz NOT NULL,
    closes_at timestamptz,
    PRIMARY KEY (account_id, id)
);
CREATE INDEX spend_claim_lease ON spend_claim (account_id, lease_until);
CREATE INDEX spend_claim_line ON spend_claim (account_id, place) WHERE state = 'waiting';

CREATE TYPE spend_answer AS (
    yes boolean, first boolean, spent_usd numeric, reserved_usd numeric, seen timestamptz, resets_at timestamptz
);

CREATE FUNCTION spend_end_of_window_v1(time_window text, seen timestamptz) RETURNS timestamptz
LANGUAGE sql AS $$
    SELECT CASE WHEN time_window = 'total' THEN 'infinity'::timestamptz ELSE
        (date_trunc(time_window, seen AT TIME ZONE 'UTC') + ('1 ' || time_window)::interval) AT TIME ZONE 'UTC'
    END
$$;

CREATE FUNCTION spend_forget_old_accounts_v1(but spend_account) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM spend_account WHERE id IN (
        SELECT old.id FROM spend_account AS old
        WHERE old.closes_at <= but.seen - interval '1 day' AND old.id <> but.id AND NOT EXISTS (
            SELECT FROM spend_claim WHERE account_id = old.id AND lease_until > but.seen)
        LIMIT 100 FOR UPDATE SKIP LOCKED)
$$;

CREATE FUNCTION spend_take_out_v1(account spend_account, claim spend_claim) RETURNS spend_account
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM spend_claim WHERE account_id = account.id AND id = claim.id;
    IF claim.closes_at = account.closes_at THEN
        IF claim.state = 'lapsed' THEN
            account.spent_usd := account.spent_usd - claim.amount_usd;
        ELSE
            account.reserved_usd := account.reserved_usd - claim.amount_usd;
        END IF;
    END IF;
    RETURN account;
END $$;

-- The account, locked and brought up to date. Without an id if there is none and none is to be created.
CREATE FUNCTION spend_open_v1(the_key text, the_window text, may_create boolean) RETURNS spend_account
LANGUAGE plpgsql AS $$
DECLARE
    account spend_account;
    claim spend_claim;
BEGIN
    LOOP
        SELECT * INTO account FROM spend_account
            WHERE account_key = the_key AND time_window = the_window FOR UPDATE;
        EXIT WHEN FOUND;
        account.seen := clock_timestamp();
        account.closes_at := spend_end_of_window_v1(the_window, account.seen);
        account.spent_usd := 0;
        account.reserved_usd := 0;
        IF NOT may_create THEN
            RETURN account;
        END IF;
        INSERT INTO spend_account (account_key, time_window, seen, closes_at, spent_usd, reserved_usd)
            VALUES (the_key, the_window, account.seen, account.closes_at, 0, 0) ON CONFLICT DO NOTHING;
        PERFORM spend_forget_old_accounts_v1(account);
    END LOOP;

    account.seen := greatest(account.seen, clock_timestamp());
    FOR claim IN SELECT * FROM spend_claim WHERE account_id = account.id AND lease_until <= account.seen LOOP
        IF claim.state = 'lapsed' THEN
            DELETE FROM spend_claim WHERE account_id = account.id AND id = claim.id;
            CONTINUE;
        END IF;
        account := spend_take_out_v1(account, claim);
        IF claim.state = 'sent' AND claim.closes_at = account.closes_at THEN
            account.spent_usd := account.spent_usd + claim.amount_usd;
            INSERT INTO spend_claim (account_id, id, state, amount_usd, lease_until, closes_at)
                VALUES (account.id, claim.id, 'lapsed', claim.amount_usd, account.seen + interval '7 days',
                    claim.closes_at);
        END IF;
    END LOOP;

    IF account.closes_at <= account.seen THEN
        account.closes_at := spend_end_of_window_v1(the_window, account.seen);
        account.spent_usd := 0;
        account.reserved_usd := 0;
        PERFORM spend_forget_old_accounts_v1(account);
    END IF;
    RETURN account;
END $$;

CREATE FUNCTION spend_close_v1(account spend_account, yes boolean, first boolean) RETURNS spend_answer
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE spend_account SET seen = account.seen, closes_at = account.closes_at,
        spent_usd = account.spent_usd, reserved_usd = account.reserved_usd WHERE id = account.id;
    RETURN (yes, first, account.spent_usd, account.reserved_usd, account.seen,
        nullif(account.closes_at, 'infinity'));
END $$;

CREATE FUNCTION spend_reserve_v1(
    the_key text, the_window text, claim_id text, asked numeric, spend_limit numeric, lease interval
) RETURNS spend_answer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    account spend_account := spend_open_v1(the_key, the_window, true);
    claim spend_claim;
    first_in_line text;
    first boolean;
BEGIN
    SELECT * INTO claim FROM spend_claim WHERE account_id = account.id AND id = claim_id;
    IF claim.state = 'reserved' AND asked > claim.amount_usd THEN
        account := spend_take_out_v1(account, claim);
        claim := NULL;
    END IF;
    IF claim.state IN ('sent', 'lapsed') THEN
        RETURN spend_close_v1(account, asked <= claim.amount_usd, true);
    END IF;
    SELECT id INTO first_in_line FROM spend_claim
        WHERE account_id = account.id AND state = 'waiting' ORDER BY place LIMIT 1;
    first := coalesce(claim.state = 'reserved', false) OR coalesce(first_in_line = claim_id, true);
    IF claim.state = 'reserved' THEN
        IF claim.closes_at = account.closes_at THEN
            account.reserved_usd := account.reserved_usd - claim.amount_usd + asked;
        END IF;
    ELSIF first AND account.spent_usd + account.reserved_usd + asked <= spend_limit THEN
        claim.state := 'reserved';
        claim.closes_at := account.closes_at;
        account.reserved_usd := account.reserved_usd + asked;
    ELSE
        claim.state := 'waiting';
    END IF;
    INSERT INTO spend_claim AS kept (account_id, id, state, amount_usd, lease_until, closes_at)
        VALUES (account.id, claim_id, claim.state, asked, account.seen + lease, claim.closes_at)
        ON CONFLICT (account_id, id) DO UPDATE SET state = excluded.state, amount_usd = excluded.amount_usd,
            lease_until = excluded.lease_until, closes_at = excluded.closes_at;
    RETURN spend_close_v1(account, claim.state = 'reserved', first);
END $$;

CREATE FUNCTION spend_mark_sent_v1(the_key text, the_window text, claim_id text, lease interval)
RETURNS spend_answer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    account spend_account := spend_open_v1(the_key, the_window, false);
BEGIN
    UPDATE spend_claim SET state = 'sent', lease_until = account.seen + lease
        WHERE account_id = account.id AND id = claim_id AND state IN ('reserved', 'sent');
    RETURN spend_close_v1(account, FOUND, true);
END $$;

CREATE FUNCTION spend_settle_v1(the_key text, the_window text, claim_id text, cost numeric)
RETURNS spend_answer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    account spend_account := spend_open_v1(the_key, the_window, false);
    claim spend_claim;
BEGIN
    SELECT * INTO claim FROM spend_claim WHERE account_id = account.id AND id = claim_id;
    IF FOUND THEN
        account := spend_take_out_v1(account, claim);
        IF claim.state = 'waiting' OR claim.closes_at = account.closes_at THEN
            account.spent_usd := account.spent_usd + cost;
        END IF;
    END IF;
    RETURN spend_close_v1(account, FOUND, true);
END $$;

CREATE FUNCTION spend_renew_v1(the_key text, the_window text, claim_ids text[], leases interval[])
RETURNS spend_answer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    account spend_account := spend_open_v1(the_key, the_window, false);
BEGIN
    UPDATE spend_claim SET lease_until = account.seen + renewed.lease
        FROM unnest(claim_ids, leases) AS renewed (id, lease)
        WHERE account_id = account.id AND spend_claim.id = renewed.id AND state <> 'lapsed';
    RETURN spend_close_v1(account, FOUND, true);
END $$;

-- Last, because it is looked for to see whether all this is there.
CREATE FUNCTION spend_balance_v1(the_key text, the_window text)
RETURNS spend_answer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RETURN spend_close_v1(spend_open_v1(the_key, the_window, false), true, true);
END $$;
