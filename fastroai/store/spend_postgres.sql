-- The rules of fastroai/usage/spend_rules.py, where PostgreSQL runs them as one statement: a function call.
--
-- Run in a schema of their own, with the search path set to it, which the functions remember. Each of them
-- locks its account first, so what happens to one account happens in one order. A window of `total` closes at
-- infinity. A claim that waits has no window, and neither its number nor that of a window that is not kept any
-- more is found when something is to be counted there.

CREATE TABLE spend_account (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_key text NOT NULL,
    time_window text NOT NULL,
    seen timestamptz NOT NULL,
    closes_at timestamptz NOT NULL,
    charged bigint NOT NULL,
    UNIQUE (account_key, time_window)
) WITH (fillfactor = 50);
CREATE INDEX spend_account_closed ON spend_account (closes_at);

CREATE TABLE spend_window (
    account_id bigint NOT NULL REFERENCES spend_account ON DELETE CASCADE,
    number bigint NOT NULL,
    closes_at timestamptz NOT NULL,
    spent_usd numeric NOT NULL DEFAULT 0,
    reserved_usd numeric NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, number)
) WITH (fillfactor = 50);

CREATE TABLE spend_claim (
    account_id bigint NOT NULL REFERENCES spend_account ON DELETE CASCADE,
    id text NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    state text NOT NULL,
    amount_usd numeric NOT NULL,
    lease_until timestamptz NOT NULL,
    holder text NOT NULL,
    window_number bigint,
    within text NOT NULL DEFAULT '',
    PRIMARY KEY (account_id, id)
);
CREATE INDEX spend_claim_lease ON spend_claim (account_id, lease_until);
CREATE INDEX spend_claim_line ON spend_claim (account_id, place) WHERE state = 'waiting';

CREATE TYPE spend_answer AS (
    yes boolean, first boolean, spent_usd numeric, reserved_usd numeric, seen timestamptz, resets_at timestamptz,
    holders text[]
);

CREATE FUNCTION spend_clock_v1() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() $$;

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

-- Open a window, of which the latest four are kept.
CREATE FUNCTION spend_open_window_v1(account spend_account) RETURNS spend_account
LANGUAGE plpgsql AS $$
BEGIN
    SELECT coalesce(max(number), 0) + 1 INTO account.charged FROM spend_window WHERE account_id = account.id;
    INSERT INTO spend_window (account_id, number, closes_at)
        VALUES (account.id, account.charged, account.closes_at);
    DELETE FROM spend_window WHERE account_id = account.id AND number <= account.charged - 4;
    PERFORM spend_forget_old_accounts_v1(account);
    RETURN account;
END $$;

-- Go on with the calendar window that the clock shows.
CREATE FUNCTION spend_turn_to_v1(account spend_account, ends timestamptz) RETURNS spend_account
LANGUAGE plpgsql AS $$
DECLARE
    left_at CONSTANT timestamptz := account.closes_at;
    known bigint;
BEGIN
    IF ends = left_at THEN
        RETURN account;
    END IF;
    account.closes_at := ends;
    SELECT number INTO known FROM spend_window WHERE account_id = account.id AND closes_at = ends;
    IF FOUND THEN
        account.charged := known;
    ELSIF ends > left_at THEN
        account := spend_open_window_v1(account);
    END IF;
    RETURN account;
END $$;

CREATE FUNCTION spend_count_v1(account spend_account, window_number bigint, spent numeric, reserved numeric)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE spend_window SET spent_usd = spent_usd + spent, reserved_usd = reserved_usd + reserved
        WHERE account_id = account.id AND number = window_number;
    RETURN FOUND;
END $$;

CREATE FUNCTION spend_take_out_v1(account spend_account, claim spend_claim) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM spend_claim WHERE account_id = account.id AND id = claim.id;
    IF claim.state = 'lapsed' THEN
        PERFORM spend_count_v1(account, claim.window_number, -claim.amount_usd, 0);
    ELSE
        PERFORM spend_count_v1(account, claim.window_number, 0, -claim.amount_usd);
    END IF;
END $$;

-- Let the claim that this one was taken from, if there is one, reserve so much of it again.
CREATE FUNCTION spend_give_back_v1(account spend_account, claim spend_claim, back numeric) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    other_window bigint;
BEGIN
    IF claim.within <> '' AND back > 0 THEN
        UPDATE spend_claim SET amount_usd = amount_usd + back
            WHERE account_id = account.id AND id = claim.within AND state = 'reserved'
            RETURNING window_number INTO other_window;
        PERFORM spend_count_v1(account, other_window, 0, back);
    END IF;
END $$;

CREATE FUNCTION spend_lease_over_v1(account spend_account, claim spend_claim) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF claim.state = 'lapsed' THEN
        DELETE FROM spend_claim WHERE account_id = account.id AND id = claim.id;
        RETURN;
    END IF;
    PERFORM spend_take_out_v1(account, claim);
    IF claim.state = 'reserved' THEN
        PERFORM spend_give_back_v1(account, claim, claim.amount_usd);
    END IF;
    IF claim.state = 'sent' AND spend_count_v1(account, claim.window_number, claim.amount_usd, 0) THEN
        INSERT INTO spend_claim (account_id, id, state, amount_usd, lease_until, holder, window_number)
            VALUES (account.id, claim.id, 'lapsed', claim.amount_usd, account.seen + interval '7 days',
                claim.holder, claim.window_number);
    END IF;
END $$;

-- The account, locked and brought up to date. Without an id if there is none and none is to be created.
CREATE FUNCTION spend_open_v1(the_key text, the_window text, may_create boolean) RETURNS spend_account
LANGUAGE plpgsql AS $$
DECLARE
    account spend_account;
    claim spend_claim;
    now_seen timestamptz;
BEGIN
    LOOP
        SELECT * INTO account FROM spend_account
            WHERE account_key = the_key AND time_window = the_window FOR UPDATE;
        EXIT WHEN FOUND;
        account.seen := spend_clock_v1();
        account.closes_at := spend_end_of_window_v1(the_window, account.seen);
        IF NOT may_create THEN
            RETURN account;
        END IF;
        INSERT INTO spend_account (account_key, time_window, seen, closes_at, charged)
            VALUES (the_key, the_window, account.seen, account.closes_at, 1) ON CONFLICT DO NOTHING
            RETURNING * INTO account;
        IF FOUND THEN
            PERFORM spend_open_window_v1(account);
        END IF;
    END LOOP;

    now_seen := spend_clock_v1();
    IF now_seen < account.seen THEN
        UPDATE spend_claim SET lease_until = lease_until + (now_seen - account.seen)
            WHERE account_id = account.id;
    END IF;
    account.seen := now_seen;
    FOR claim IN SELECT * FROM spend_claim WHERE account_id = account.id AND lease_until <= account.seen LOOP
        PERFORM spend_lease_over_v1(account, claim);
    END LOOP;
    RETURN spend_turn_to_v1(account, spend_end_of_window_v1(the_window, account.seen));
END $$;

CREATE FUNCTION spend_close_v1(account spend_account, yes boolean, first boolean, holders text[] = '{}')
RETURNS spend_answer LANGUAGE plpgsql AS $$
DECLARE
    spent numeric;
    reserved numeric;
BEGIN
    UPDATE spend_account SET seen = account.seen, closes_at = account.closes_at, charged = account.charged
        WHERE id = account.id;
    SELECT coalesce(sum(spent_usd), 0), coalesce(sum(reserved_usd), 0) INTO spent, reserved
        FROM spend_window WHERE account_id = account.id AND number >= account.charged;
    RETURN (yes, first, spent, reserved, account.seen, nullif(account.closes_at, 'infinity'), holders);
END $$;

CREATE FUNCTION spend_reserve_v1(
    the_key text, the_window text, claim_id text, asked numeric, spend_limit numeric, lease interval, the_holder text,
    the_payer text
) RETURNS spend_answer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    account spend_account := spend_open_v1(the_key, the_window, true);
    claim spend_claim;
    first_in_line text;
    first boolean;
    used numeric;
    payer_window bigint;
    holders text[] := '{}';
BEGIN
    SELECT * INTO claim FROM spend_claim WHERE account_id = account.id AND id = claim_id;
    IF claim.state = 'reserved' AND asked > claim.amount_usd THEN
        PERFORM spend_take_out_v1(account, claim);
        PERFORM spend_give_back_v1(account, claim, claim.amount_usd);
        claim := NULL;
    END IF;
    IF claim.state IN ('sent', 'lapsed') THEN
        RETURN spend_close_v1(account, asked <= claim.amount_usd, true);
    END IF;
    SELECT id INTO first_in_line FROM spend_claim
        WHERE account_id = account.id AND state = 'waiting' ORDER BY place LIMIT 1;
    first := coalesce(claim.state = 'reserved', false) OR coalesce(first_in_line = claim_id, true);
    IF claim.state = 'reserved' THEN
        PERFORM spend_count_v1(account, claim.window_number, 0, asked - claim.amount_usd);
        PERFORM spend_give_back_v1(account, claim, claim.amount_usd - asked);
    ELSE
        UPDATE spend_claim SET amount_usd = amount_usd - asked
            WHERE account_id = account.id AND id = the_payer AND state = 'reserved' AND amount_usd >= asked
                AND window_number >= account.charged
            RETURNING window_number INTO payer_window;
        SELECT sum(spent_usd) + sum(reserved_usd) INTO used
            FROM spend_window WHERE account_id = account.id AND number >= account.charged;
        IF payer_window IS NOT NULL THEN
            claim.state := 'reserved';
            claim.window_number := payer_window;
            claim.within := the_payer;
        ELSIF first AND used + asked <= spend_limit THEN
            claim.state := 'reserved';
            claim.window_number := account.charged;
            PERFORM spend_count_v1(account, account.charged, 0, asked);
        ELSE
            claim.state := 'waiting';
        END IF;
    END IF;
    INSERT INTO spend_claim AS kept (account_id, id, state, amount_usd, lease_until, holder, window_number, within)
        VALUES (account.id, claim_id, claim.state, asked, account.seen + lease, the_holder, claim.window_number,
            coalesce(claim.within, ''))
        ON CONFLICT (account_id, id) DO UPDATE SET state = excluded.state, amount_usd = excluded.amount_usd,
            lease_until = excluded.lease_until, window_number = excluded.window_number, within = excluded.within;
    IF claim.state = 'waiting' THEN
        SELECT array_agg(DISTINCT holder) INTO holders FROM spend_claim
            WHERE account_id = account.id AND state <> 'lapsed';
    END IF;
    RETURN spend_close_v1(account, claim.state = 'reserved', first AND coalesce(claim.within, '') = '', holders);
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
        PERFORM spend_take_out_v1(account, claim);
        PERFORM spend_count_v1(account, coalesce(claim.window_number, account.charged), cost, 0);
        PERFORM spend_give_back_v1(account, claim, claim.amount_usd - cost);
    END IF;
    RETURN spend_close_v1(account, true, true);
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

CREATE FUNCTION spend_end_leases_v1(the_key text, the_window text, dead text[])
RETURNS spend_answer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    account spend_account := spend_open_v1(the_key, the_window, false);
    claim spend_claim;
BEGIN
    FOR claim IN SELECT * FROM spend_claim
        WHERE account_id = account.id AND holder = ANY (dead) AND state <> 'lapsed' LOOP
        PERFORM spend_lease_over_v1(account, claim);
    END LOOP;
    RETURN spend_close_v1(account, true, true);
END $$;

-- Last, because it is looked for to see whether all this is there.
CREATE FUNCTION spend_balance_v1(the_key text, the_window text)
RETURNS spend_answer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RETURN spend_close_v1(spend_open_v1(the_key, the_window, false), true, true);
END $$;
