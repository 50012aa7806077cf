-- The rules of fastroai/usage/spend_rules.py, where PostgreSQL runs them as one statement: a function call.
--
-- This script is run with the search path set to a schema of its own, which the functions remember. Each function
-- locks its account first, so the changes of one account have one order. A window of `total` closes at infinity.
-- A waiting claim has no window. Amounts for a missing or forgotten window are not counted, because no row has its
-- number.

CREATE TABLE spend_account (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_key text NOT NULL,
    time_window text NOT NULL,
    seen timestamptz NOT NULL,
    closes_at timestamptz NOT NULL,
    charged bigint NOT NULL,
    keep interval NOT NULL DEFAULT '90 days',
    kept_until timestamptz NOT NULL,
    UNIQUE (account_key, time_window)
) WITH (fillfactor = 50);
CREATE INDEX spend_account_kept ON spend_account (kept_until);

CREATE TABLE spend_window (
    account_id bigint NOT NULL REFERENCES spend_account ON DELETE CASCADE,
    number bigint NOT NULL,
    closes_at timestamptz NOT NULL,
    spent_usd numeric NOT NULL DEFAULT 0,
    reserved_usd numeric NOT NULL DEFAULT 0,
    limit_usd numeric NOT NULL DEFAULT 0,
    set_limit_usd numeric,
    PRIMARY KEY (account_id, number)
) WITH (fillfactor = 50);

CREATE TABLE spend_told (
    account_id bigint NOT NULL,
    number bigint NOT NULL,
    share integer NOT NULL,
    limit_usd numeric NOT NULL,
    claim_id text NOT NULL,
    PRIMARY KEY (account_id, number, share, limit_usd),
    FOREIGN KEY (account_id, number) REFERENCES spend_window ON DELETE CASCADE
);

CREATE TABLE spend_adjustment (
    account_id bigint NOT NULL,
    id text NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    number bigint NOT NULL,
    made_at timestamptz NOT NULL,
    changes text NOT NULL,
    from_usd numeric NOT NULL,
    to_usd numeric NOT NULL,
    made_by text NOT NULL,
    reason text NOT NULL,
    PRIMARY KEY (account_id, id),
    FOREIGN KEY (account_id, number) REFERENCES spend_window ON DELETE CASCADE
);

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
    holders text[], set_limit_usd numeric, reached integer[]
);

CREATE TYPE spend_seen_window AS (
    number bigint, spent_usd numeric, reserved_usd numeric, seen timestamptz, resets_at timestamptz, is_open boolean,
    limit_usd numeric
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
        WHERE old.kept_until <= but.seen AND old.id <> but.id AND NOT EXISTS (
            SELECT FROM spend_claim WHERE account_id = old.id AND lease_until > but.seen)
        LIMIT 100 FOR UPDATE SKIP LOCKED)
$$;

-- Open a window. Those that ended long ago are forgotten, but for the latest four.
CREATE FUNCTION spend_open_window_v1(account spend_account) RETURNS spend_account
LANGUAGE plpgsql AS $$
DECLARE
    latest spend_window;
BEGIN
    SELECT * INTO latest FROM spend_window WHERE account_id = account.id ORDER BY number DESC LIMIT 1;
    account.charged := coalesce(latest.number, 0) + 1;
    INSERT INTO spend_window (account_id, number, closes_at, limit_usd)
        VALUES (account.id, account.charged, account.closes_at, coalesce(latest.limit_usd, 0));
    DELETE FROM spend_window WHERE account_id = account.id AND number <= account.charged - 4
        AND closes_at <= account.seen - account.keep;
    PERFORM spend_forget_old_accounts_v1(account);
    RETURN account;
END $$;

-- Turn to the window of the calendar time.
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

-- Return this amount to the claim from which this claim took its own, if there is such a claim.
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

-- Return the account, locked and up to date. It has no id if it does not exist and may not be created.
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
        INSERT INTO spend_account (account_key, time_window, seen, closes_at, charged, kept_until)
            VALUES (the_key, the_window, account.seen, account.closes_at, 1, 'infinity') ON CONFLICT DO NOTHING
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

CREATE FUNCTION spend_close_v1(
    account spend_account, yes boolean, first boolean, holders text[] = '{}', reached integer[] = '{}'
) RETURNS spend_answer LANGUAGE plpgsql AS $$
DECLARE
    spent numeric;
    reserved numeric;
    set_limit numeric;
BEGIN
    UPDATE spend_account SET seen = account.seen, closes_at = account.closes_at, charged = account.charged,
            keep = account.keep, kept_until = account.closes_at + account.keep
        WHERE id = account.id;
    SELECT coalesce(sum(spent_usd), 0), coalesce(sum(reserved_usd), 0),
            max(set_limit_usd) FILTER (WHERE number = account.charged)
        INTO spent, reserved, set_limit
        FROM spend_window WHERE account_id = account.id AND number >= account.charged;
    RETURN (
        yes, first, spent, reserved, account.seen, nullif(account.closes_at, 'infinity'), holders, set_limit, reached
    );
END $$;

CREATE FUNCTION spend_reserve_v1(
    the_key text, the_window text, claim_id text, asked numeric, spend_limit numeric, lease interval, the_holder text,
    keep interval, the_payer text
) RETURNS spend_answer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    account spend_account := spend_open_v1(the_key, the_window, true);
    claim spend_claim;
    first_in_line text;
    first boolean;
    used numeric;
    in_force numeric;
    payer_window bigint;
    holders text[] := '{}';
BEGIN
    account.keep := keep;
    SELECT coalesce(set_limit_usd, spend_limit) INTO in_force FROM spend_window
        WHERE account_id = account.id AND number = account.charged;
    UPDATE spend_window SET limit_usd = spend_limit
        WHERE account_id = account.id AND number = account.charged AND limit_usd <> spend_limit;
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
        ELSIF first AND used + asked <= in_force THEN
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

CREATE FUNCTION spend_spent_v1(account spend_account) RETURNS numeric
LANGUAGE sql AS $$
    SELECT coalesce(sum(spent_usd), 0) FROM spend_window WHERE account_id = account.id AND number >= account.charged
$$;

-- Return the shares, in millionths of the limit that holds, about which this claim gives the warning.
CREATE FUNCTION spend_reached_v1(account spend_account, the_claim_id text, the_limit numeric, shares integer[])
RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
    reached integer[];
BEGIN
    IF cardinality(shares) = 0 THEN
        RETURN shares;
    END IF;
    INSERT INTO spend_told (account_id, number, share, limit_usd, claim_id)
        SELECT account.id, account.charged, asked.share, the_limit, the_claim_id
        FROM unnest(shares) AS asked (share), spend_window AS open
        WHERE open.account_id = account.id AND open.number = account.charged AND spend_spent_v1(account) * 1000000
            >= coalesce(open.set_limit_usd, the_limit) * asked.share
        ON CONFLICT DO NOTHING;
    SELECT coalesce(array_agg(share), '{}') INTO reached FROM spend_told
        WHERE account_id = account.id AND number = account.charged AND limit_usd = the_limit
            AND claim_id = the_claim_id AND share = ANY (shares);
    RETURN reached;
END $$;

CREATE FUNCTION spend_settle_v1(
    the_key text, the_window text, claim_id text, cost numeric, the_limit numeric, shares integer[]
) RETURNS spend_answer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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
    RETURN spend_close_v1(
        account, true, true, reached => spend_reached_v1(account, claim_id, the_limit, shares));
END $$;

-- Set spending in the charged and later windows to zero. Lapsed claims in them can then not be corrected any more.
CREATE FUNCTION spend_start_from_zero_v1(account spend_account) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM spend_claim
        WHERE account_id = account.id AND state = 'lapsed' AND window_number >= account.charged;
    UPDATE spend_window SET spent_usd = 0 WHERE account_id = account.id AND number >= account.charged;
$$;

CREATE FUNCTION spend_adjust_v1(
    the_key text, the_window text, change_id text, the_changes text, the_limit numeric, the_maker text, the_reason text
) RETURNS SETOF spend_adjustment LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    account spend_account := spend_open_v1(the_key, the_window, false);
    before numeric;
    after numeric := 0;
BEGIN
    IF account.id IS NULL THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM spend_adjustment WHERE account_id = account.id AND id = change_id) THEN
        IF the_changes = 'limit' THEN
            SELECT coalesce(set_limit_usd, limit_usd) INTO before FROM spend_window
                WHERE account_id = account.id AND number = account.charged;
            UPDATE spend_window SET set_limit_usd = the_limit
                WHERE account_id = account.id AND number = account.charged
                RETURNING coalesce(set_limit_usd, limit_usd) INTO after;
        ELSE
            before := spend_spent_v1(account);
            PERFORM spend_start_from_zero_v1(account);
        END IF;
        DELETE FROM spend_told USING spend_window AS open
            WHERE open.account_id = account.id AND open.number = account.charged
                AND spend_told.account_id = open.account_id AND spend_told.number = open.number
                AND spend_spent_v1(account) * 1000000
                    < coalesce(open.set_limit_usd, spend_told.limit_usd) * spend_told.share;
        INSERT INTO spend_adjustment (account_id, id, number, made_at, changes, from_usd, to_usd, made_by, reason)
            VALUES (account.id, change_id, account.charged, account.seen, the_changes, before, after, the_maker,
                the_reason);
    END IF;
    PERFORM spend_close_v1(account, true, true);
    RETURN QUERY SELECT * FROM spend_adjustment WHERE account_id = account.id AND id = change_id;
END $$;

-- Return the amounts of the account, window by window. Its changes on the way there are undone.
CREATE FUNCTION spend_windows_v1(the_key text, the_window text, closed boolean) RETURNS SETOF spend_seen_window
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    account spend_account;
    found spend_seen_window[];
BEGIN
    BEGIN
        account := spend_open_v1(the_key, the_window, false);
        SELECT array_agg((
            number, spent_usd, reserved_usd, account.seen, nullif(closes_at, 'infinity'), false,
            coalesce(set_limit_usd, limit_usd))::spend_seen_window) INTO found
            FROM spend_window WHERE account_id = account.id AND number < account.charged AND closed;
        SELECT array_append(found, (
            account.charged, sum(spent_usd), sum(reserved_usd), account.seen, nullif(account.closes_at, 'infinity'),
            true, max(coalesce(set_limit_usd, limit_usd)) FILTER (WHERE number = account.charged)
            )::spend_seen_window) INTO found
            FROM spend_window WHERE account_id = account.id AND number >= account.charged
            HAVING count(*) > 0;
        RAISE EXCEPTION USING ERRCODE = 'FA001';
    EXCEPTION WHEN SQLSTATE 'FA001' THEN
        NULL; -- its changes are undone, and what was found stays
    END;
    RETURN QUERY SELECT * FROM unnest(found) ORDER BY number DESC;
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

-- The last function, because its existence shows that this whole script has run.
CREATE FUNCTION spend_balance_v1(the_key text, the_window text)
RETURNS spend_answer LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RETURN spend_close_v1(spend_open_v1(the_key, the_window, false), true, true);
END $$;
