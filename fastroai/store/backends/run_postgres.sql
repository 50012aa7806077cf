-- A store of runs, each write of which is one statement: a function call.
--
-- This script is run with the search path set to a schema of its own, which the functions remember. It is run again
-- where an earlier version of it has made some of this. A function
-- that writes locks the row of the key first, so the changes of one key have one order. Keys are UTF-8 bytes in
-- any encoding of the database, and are sorted by these bytes. A function that writes returns NULL, or the
-- revision of the key if that is not the expected one.

CREATE TABLE IF NOT EXISTS run_key (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key bytea NOT NULL UNIQUE,
    revision bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS run_value (
    key_id bigint NOT NULL,
    position bigint NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (key_id, position)
);

-- The keys whose changes are announced, and until when.
CREATE UNLOGGED TABLE IF NOT EXISTS run_followed (
    key bytea PRIMARY KEY,
    until timestamptz NOT NULL
);

-- The position after which keys begin that are replaced: the highest revision at which one was deleted.
CREATE TABLE IF NOT EXISTS run_new_after (one boolean PRIMARY KEY CHECK (one), revision bigint NOT NULL);

-- The index of runs: what their headers say. A row that is stale is behind its header, because an earlier version has
-- written that; it is read again before the index is used.
CREATE TABLE IF NOT EXISTS run_header (
    key_id bigint PRIMARY KEY,
    stale integer NOT NULL,
    readable integer,
    run_id bytea,
    status bytea,
    pipeline bytea,
    tenant bytea,
    tag_lines bytea,
    search bytea,
    started bigint,
    updated bigint,
    duration bigint,
    cost bigint,
    due bigint,
    questions bigint,
    summed integer,
    spent_since bigint,
    spent_until bigint
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS run_started ON run_header (started DESC, run_id);
CREATE INDEX IF NOT EXISTS run_status ON run_header (status, started DESC, run_id);
CREATE INDEX IF NOT EXISTS run_asks ON run_header (started DESC, run_id) WHERE questions > 0;
CREATE INDEX IF NOT EXISTS run_due ON run_header (pipeline, due) WHERE due IS NOT NULL;
CREATE INDEX IF NOT EXISTS run_stale ON run_header (key_id) WHERE stale = 1;

-- What runs have spent, by part. Amounts are sums of billionths of a dollar, and of 10^-21 dollars.
CREATE TABLE IF NOT EXISTS run_spent (
    key_id bigint NOT NULL,
    day integer NOT NULL,
    step bytea,
    model bytea NOT NULL,
    spent_for bytea,
    tags bytea NOT NULL,
    units bytea NOT NULL,
    request_count bigint NOT NULL,
    failed_requests bigint NOT NULL,
    unpriced_requests bigint NOT NULL,
    unmeasured_requests bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    input_audio_tokens bigint NOT NULL,
    cache_audio_read_tokens bigint NOT NULL,
    output_audio_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    unbounded_requests bigint NOT NULL,
    unmeasured_bound_tokens bigint NOT NULL,
    cost_usd_coarse bigint NOT NULL,
    cost_usd_fine bigint NOT NULL,
    uncertain_usd_coarse bigint NOT NULL,
    uncertain_usd_fine bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS run_spent_of ON run_spent (key_id);

-- Lock a key, advance its revision, and return its id; or return its revision if that is not the expected one.
-- The revision is read after the attempt. If the key was deleted in between, it can be the expected one: then the
-- attempt is repeated.
CREATE OR REPLACE FUNCTION run_advance_v1(
    the_key bytea, the_revision bigint, added bigint, OUT the_id bigint, OUT in_the_way bigint
)
LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        IF the_revision = 0 THEN
            INSERT INTO run_key (key, revision) VALUES (the_key, added)
                ON CONFLICT DO NOTHING RETURNING id INTO the_id;
        ELSE
            UPDATE run_key SET revision = revision + added
                WHERE key = the_key AND revision = the_revision RETURNING id INTO the_id;
        END IF;
        EXIT WHEN the_id IS NOT NULL;
        in_the_way := run_revision_v1(the_key);
        EXIT WHEN in_the_way <> the_revision;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION run_revision_v1(the_key bytea) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((SELECT revision FROM run_key WHERE key = the_key), 0);
END $$;

-- Announce the change of a key, on a channel with the name of the schema. Only followed keys are announced, because
-- transactions that notify commit one after the other. The key is sent as hexadecimal digits, because it need not
-- be text in the encoding of the database.
CREATE OR REPLACE FUNCTION run_hint_v1(the_key bytea) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(current_schema(), encode(the_key, 'hex'))
        FROM run_followed WHERE key = the_key AND until > clock_timestamp();
END $$;

-- Have changes of a key announced for some seconds. A transaction that writes the key at this moment may not see
-- that yet: after this has committed, lock the key's row to wait for that transaction.
CREATE OR REPLACE FUNCTION run_follow_v1(the_key bytea, seconds double precision) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM run_followed WHERE until < clock_timestamp() AND key <> the_key;
    INSERT INTO run_followed (key, until) VALUES (the_key, clock_timestamp() + make_interval(secs => seconds))
        ON CONFLICT (key) DO UPDATE SET until = greatest(run_followed.until, excluded.until);
END $$;

-- Note that the index is behind a key, if that is the key of a header.
CREATE OR REPLACE FUNCTION run_stale_v1(the_key bytea, the_id bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF substring(the_key FROM 1 FOR 4) = 'run:' THEN
        INSERT INTO run_header (key_id, stale) VALUES (the_id, 1) ON CONFLICT (key_id) DO UPDATE SET stale = 1;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION run_append_v1(the_key bytea, the_revision bigint, the_values bytea[]) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    the_id bigint;
    in_the_way bigint;
BEGIN
    IF cardinality(the_values) = 0 THEN
        RETURN nullif(run_revision_v1(the_key), the_revision);
    END IF;
    SELECT * INTO the_id, in_the_way
        FROM run_advance_v1(the_key, the_revision, cardinality(the_values)) AS advanced;
    IF the_id IS NULL THEN
        RETURN in_the_way;
    END IF;
    INSERT INTO run_value (key_id, position, value)
        SELECT the_id, the_revision + given.position, given.value
        FROM unnest(the_values) WITH ORDINALITY AS given (value, position);
    PERFORM run_hint_v1(the_key);
    PERFORM run_stale_v1(the_key, the_id);
    RETURN NULL;
END $$;

-- Replace the values of a key by one, and return the number of the key; or return its revision if that is not the
-- expected one.
CREATE OR REPLACE FUNCTION run_put_v1(
    the_key bytea, the_revision bigint, the_value bytea, OUT the_id bigint, OUT in_the_way bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    before bigint := the_revision;
BEGIN
    SELECT * INTO the_id, in_the_way FROM run_advance_v1(the_key, the_revision, 1) AS advanced;
    IF the_id IS NULL THEN
        RETURN;
    END IF;
    -- Only now, because the attempt before waits for a deletion of the key that is about to commit.
    IF the_revision = 0 THEN
        before := coalesce((SELECT revision FROM run_new_after), 0);
        UPDATE run_key SET revision = before + 1 WHERE id = the_id AND before > 0;
    END IF;
    DELETE FROM run_value WHERE key_id = the_id;
    INSERT INTO run_value (key_id, position, value) VALUES (the_id, before + 1, the_value);
    PERFORM run_hint_v1(the_key);
    in_the_way := NULL;
END $$;

-- Replace the values of a key by one. If an earlier version writes a header so, the index is behind it.
CREATE OR REPLACE FUNCTION run_replace_v1(the_key bytea, the_revision bigint, the_value bytea) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    the_id bigint;
    in_the_way bigint;
BEGIN
    SELECT * INTO the_id, in_the_way FROM run_put_v1(the_key, the_revision, the_value) AS put;
    IF the_id IS NOT NULL THEN
        PERFORM run_stale_v1(the_key, the_id);
    END IF;
    RETURN in_the_way;
END $$;

-- Put a header into the index. The rows are JSON, with texts as hexadecimal digits.
CREATE OR REPLACE FUNCTION run_index_v1(the_id bigint, the_header json, the_spent json) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    header run_header;
    spent run_spent;
BEGIN
    header.key_id := the_id;
    spent.key_id := the_id;
    INSERT INTO run_header SELECT (json_populate_record(header, the_header)).*
        ON CONFLICT (key_id) DO UPDATE SET
            stale = excluded.stale, readable = excluded.readable, run_id = excluded.run_id,
            status = excluded.status, pipeline = excluded.pipeline, tenant = excluded.tenant,
            tag_lines = excluded.tag_lines, search = excluded.search, started = excluded.started,
            updated = excluded.updated, duration = excluded.duration, cost = excluded.cost, due = excluded.due,
            questions = excluded.questions, summed = excluded.summed, spent_since = excluded.spent_since,
            spent_until = excluded.spent_until;
    DELETE FROM run_spent WHERE key_id = the_id;
    INSERT INTO run_spent SELECT * FROM json_populate_recordset(spent, the_spent);
END $$;

-- Delete a key, with a revision only if it has that one.
CREATE OR REPLACE FUNCTION run_delete_v2(the_key bytea, the_revision bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    the_id bigint;
BEGIN
    DELETE FROM run_key WHERE key = the_key AND (the_revision IS NULL OR revision = the_revision)
        RETURNING id INTO the_id;
    IF the_id IS NULL THEN
        RETURN run_revision_v1(the_key);
    END IF;
    DELETE FROM run_value WHERE key_id = the_id;
    IF substring(the_key FROM 1 FOR 4) = 'run:' THEN
        DELETE FROM run_header WHERE key_id = the_id;
        DELETE FROM run_spent WHERE key_id = the_id;
    END IF;
    IF the_revision IS NOT NULL THEN
        INSERT INTO run_new_after AS kept (one, revision) VALUES (true, the_revision)
            ON CONFLICT (one) DO UPDATE SET revision = excluded.revision WHERE kept.revision < excluded.revision;
    END IF;
    PERFORM run_hint_v1(the_key);
    RETURN NULL;
END $$;

-- Replace a header, and put it into the index.
CREATE OR REPLACE FUNCTION run_replace_header_v1(
    the_key bytea, the_revision bigint, the_value bytea, the_header json, the_spent json
) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    the_id bigint;
    in_the_way bigint;
BEGIN
    SELECT * INTO the_id, in_the_way FROM run_put_v1(the_key, the_revision, the_value) AS put;
    IF the_id IS NOT NULL THEN
        PERFORM run_index_v1(the_id, the_header, the_spent);
    END IF;
    RETURN in_the_way;
END $$;

-- Write the header of a new run, and its log.
CREATE OR REPLACE FUNCTION run_begin_v1(
    the_key bytea, the_revision bigint, the_value bytea, the_header json, the_spent json,
    the_log bytea, the_values bytea[]
) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    in_the_way bigint := run_replace_header_v1(the_key, the_revision, the_value, the_header, the_spent);
BEGIN
    IF in_the_way IS NULL AND run_append_v1(the_log, 0, the_values) IS NOT NULL THEN
        RAISE EXCEPTION 'the log of a new run exists already';
    END IF;
    RETURN in_the_way;
END $$;

-- Put a stale header into the index, unless it has been written since it was read. Without rows it cannot be read, and
-- stays where it was.
CREATE OR REPLACE FUNCTION run_catch_up_v1(the_id bigint, the_revision bigint, the_header json, the_spent json)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM run_key WHERE id = the_id AND revision = the_revision FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    ELSIF the_header IS NULL THEN
        UPDATE run_header SET stale = 0, readable = 0 WHERE key_id = the_id;
    ELSE
        PERFORM run_index_v1(the_id, the_header, the_spent);
    END IF;
END $$;

-- Delete runs whose headers have these revisions, with other keys: those of the first run, then those of the second.
-- Return the keys of the headers that are gone. Keys are locked in their order, so that two deletions do not wait for
-- each other.
CREATE OR REPLACE FUNCTION run_delete_runs_v1(
    the_keys bytea[], the_revisions bigint[], the_others bytea[], others_of bytea[]
) RETURNS SETOF bytea
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    gone bytea[];
    all_keys bytea[];
    ids bigint[];
BEGIN
    SELECT array_agg(found.key) INTO gone FROM (
        SELECT run_key.key FROM run_key
            JOIN unnest(the_keys, the_revisions) AS given (key, revision) USING (key, revision)
            ORDER BY run_key.key FOR UPDATE OF run_key
    ) AS found;
    IF gone IS NULL THEN
        RETURN;
    END IF;
    SELECT gone || coalesce(array_agg(other), '{}') INTO all_keys
        FROM unnest(the_others, others_of) AS given (other, of_key) WHERE of_key = ANY (gone);
    INSERT INTO run_new_after AS kept (one, revision)
        SELECT true, max(revision) FROM run_key WHERE key = ANY (gone)
        ON CONFLICT (one) DO UPDATE SET revision = excluded.revision WHERE kept.revision < excluded.revision;
    PERFORM FROM run_key WHERE key = ANY (all_keys) ORDER BY key FOR UPDATE;
    WITH deleted AS (DELETE FROM run_key WHERE key = ANY (all_keys) RETURNING id)
        SELECT array_agg(id) INTO ids FROM deleted;
    DELETE FROM run_value WHERE key_id = ANY (ids);
    DELETE FROM run_header WHERE key_id = ANY (ids);
    DELETE FROM run_spent WHERE key_id = ANY (ids);
    PERFORM pg_notify(current_schema(), encode(key, 'hex'))
        FROM run_followed WHERE key = ANY (all_keys) AND until > clock_timestamp();
    RETURN QUERY SELECT unnest(gone);
END $$;

-- The headers that were there before the index.
INSERT INTO run_header (key_id, stale)
    SELECT id, 1 FROM run_key WHERE key >= 'run:' AND key < 'run;' ON CONFLICT DO NOTHING;

-- Read all headers into the index again.
-- The last function, because its existence shows that this whole script has run.
CREATE OR REPLACE FUNCTION run_index_anew_v1() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE run_header SET stale = 1;
END $$;
