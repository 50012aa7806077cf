-- A store of runs, each write of which is one statement: a function call.
--
-- Run in a schema of their own, with the search path set to it, which the functions remember. Who writes locks
-- the row of the key first, so what happens to one key happens in one order. Keys are UTF-8 bytes, whatever the
-- encoding of the database, in the order of these bytes. A function that writes gives nothing, or the revision
-- that was in its way.

CREATE TABLE run_key (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key bytea NOT NULL UNIQUE,
    revision bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE run_value (
    key_id bigint NOT NULL,
    position bigint NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (key_id, position)
);

-- The keys whose changes are told, and until when.
CREATE UNLOGGED TABLE run_followed (
    key bytea PRIMARY KEY,
    until timestamptz NOT NULL
);

-- The key's id, locked and counted on; or, where it is not at that revision, the one that is in the way. That is
-- read after the attempt. If another has deleted the key in between, it can be the very revision that is expected:
-- then the attempt is made again.
CREATE FUNCTION run_advance_v1(
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

CREATE FUNCTION run_revision_v1(the_key bytea) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((SELECT revision FROM run_key WHERE key = the_key), 0);
END $$;

-- Who waits for a change hears of it, on a channel with the name of the schema. Only keys that somebody follows
-- are told: transactions that notify commit one after the other. The key is told in digits, because it need not
-- be text in the encoding of the database.
CREATE FUNCTION run_hint_v1(the_key bytea) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(current_schema(), encode(the_key, 'hex'))
        FROM run_followed WHERE key = the_key AND until > clock_timestamp();
END $$;

-- Have changes of a key told for a while. Whoever writes it at this moment may not know that yet: lock its row
-- after this has committed, to wait for them.
CREATE FUNCTION run_follow_v1(the_key bytea, seconds double precision) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM run_followed WHERE until < clock_timestamp() AND key <> the_key;
    INSERT INTO run_followed (key, until) VALUES (the_key, clock_timestamp() + make_interval(secs => seconds))
        ON CONFLICT (key) DO UPDATE SET until = greatest(run_followed.until, excluded.until);
END $$;

CREATE FUNCTION run_append_v1(the_key bytea, the_revision bigint, the_values bytea[]) RETURNS bigint
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

CREATE FUNCTION run_replace_v1(the_key bytea, the_revision bigint, the_value bytea) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    the_id bigint;
    in_the_way bigint;
BEGIN
    SELECT * INTO the_id, in_the_way FROM run_advance_v1(the_key, the_revision, 1) AS advanced;
    IF the_id IS NULL THEN
        RETURN in_the_way;
    END IF;
    DELETE FROM run_value WHERE key_id = the_id;
    INSERT INTO run_value (key_id, position, value) VALUES (the_id, the_revision + 1, the_value);
    PERFORM run_hint_v1(the_key);
    RETURN NULL;
END $$;

-- Last, because it is looked for to see whether all this is there.
CREATE FUNCTION run_delete_v1(the_key bytea) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    the_id bigint;
BEGIN
    DELETE FROM run_key WHERE key = the_key RETURNING id INTO the_id;
    DELETE FROM run_value WHERE key_id = the_id;
    PERFORM run_hint_v1(the_key);
END $$;
