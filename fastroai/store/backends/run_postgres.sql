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
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION run_replace_v1(the_key bytea, the_revision bigint, the_value bytea) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    the_id bigint;
    in_the_way bigint;
    before bigint := the_revision;
BEGIN
    SELECT * INTO the_id, in_the_way FROM run_advance_v1(the_key, the_revision, 1) AS advanced;
    IF the_id IS NULL THEN
        RETURN in_the_way;
    END IF;
    -- Only now, because the attempt before waits for a deletion of the key that is about to commit.
    IF the_revision = 0 THEN
        before := coalesce((SELECT revision FROM run_new_after), 0);
        UPDATE run_key SET revision = before + 1 WHERE id = the_id AND before > 0;
    END IF;
    DELETE FROM run_value WHERE key_id = the_id;
    INSERT INTO run_value (key_id, position, value) VALUES (the_id, before + 1, the_value);
    PERFORM run_hint_v1(the_key);
    RETURN NULL;
END $$;

-- Delete a key, with a revision only if it has that one.
-- The last function, because its existence shows that this whole script has run.
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
    IF the_revision IS NOT NULL THEN
        INSERT INTO run_new_after AS kept (one, revision) VALUES (true, the_revision)
            ON CONFLICT (one) DO UPDATE SET revision = excluded.revision WHERE kept.revision < excluded.revision;
    END IF;
    PERFORM run_hint_v1(the_key);
    RETURN NULL;
END $$;
