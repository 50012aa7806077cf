-- A store of runs. Each call of this script is one operation, which Redis runs atomically.
--
-- KEYS: the index of all names (a sorted set, by name); the revisions of all names (a hash), which show that the last
-- value of a name is lost; and the list of one name: the position before its first value, then its values. The list is
-- never empty: a name without values has no list. The common beginning of the lists' keys is also the channel on which
-- changed names are announced. Last, the position after which new names begin if they are set: the highest revision
-- at which one was deleted.
-- ARGV: the operation, and its arguments. The write that Redis may refuse for lack of memory comes first, so that
-- either all writes are made or none.

local INDEX, REVISIONS, HELD, NEW_AFTER = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local AT_ONCE = 5000 -- arguments of a command; Lua takes no more than 8,000

local function digits(number) return string.format('%.0f', number) end

-- The position before the first value that a list holds; nothing if the list, or its beginning, is lost.
local function before_first(held) return tonumber(redis.call('LINDEX', held, 0) or nil) end

-- The revision on record. An earlier version of this script records none: what that has written, before or since, is the
-- last value in the list. A name in the index whose list is lost had one value at least: somebody has removed them, or
-- the server has evicted them.
local function revision_of(held, name)
    local recorded, before = redis.call('HGET', REVISIONS, name), before_first(held)
    local last = before and before + redis.call('LLEN', held) - 1
    if recorded then return math.max(tonumber(recorded), last or 0) end
    return last or redis.call('ZSCORE', INDEX, name) and 1 or 0
end

-- Announce a changed name. A user without the right to publish can still write; then followers poll.
local function hint(name)
    redis.pcall('PUBLISH', string.sub(HELD, 1, #HELD - #name), name)
end

local operations = {}

-- The values are the elements of ARGV from the fourth on: there may be more of them than a function can take.
function operations.append(name, revision)
    local actual = revision_of(HELD, name)
    if actual ~= tonumber(revision) or #ARGV < 4 then return actual end
    for first = 4, #ARGV, AT_ONCE do
        local last = math.min(first + AT_ONCE - 1, #ARGV)
        if redis.call('RPUSHX', HELD, unpack(ARGV, first, last)) == 0 then
            redis.call('RPUSH', HELD, digits(actual), unpack(ARGV, first, last))
            redis.call('ZADD', INDEX, 0, name)
        end
    end
    redis.call('HSET', REVISIONS, name, digits(actual + #ARGV - 3))
    hint(name)
    return actual
end

function operations.compare_and_set(name, revision, value)
    local actual = revision_of(HELD, name)
    if actual ~= tonumber(revision) then return actual end
    local before = actual
    if actual == 0 then
        before = tonumber(redis.call('GET', NEW_AFTER) or 0)
        redis.call('ZADD', INDEX, 0, name)
    end
    redis.call('RPUSH', HELD, value)
    redis.call('LTRIM', HELD, -1, -1)
    redis.call('LPUSH', HELD, digits(before))
    redis.call('HSET', REVISIONS, name, digits(before + 1))
    hint(name)
    return actual
end

function operations.read(name, after, last)
    local revision, now, values = revision_of(HELD, name), redis.call('TIME'), {}
    local before = before_first(HELD)
    if before and revision > tonumber(after) then
        local stop = tonumber(last) < 0 and -1 or math.max(last - before, 0)
        values = redis.call('LRANGE', HELD, math.max(after - before, 0) + 1, stop)
    end
    return {revision, now[1], now[2], values}
end

-- A name whose last value is lost is listed with an empty value.
function operations.list(first, last, limit)
    local found, from = {}, '[' .. first
    while #found < tonumber(limit) do
        local names = redis.call('ZRANGEBYLEX', INDEX, from, '(' .. last, 'LIMIT', 0, limit - #found)
        if #names == 0 then return found end
        for _, name in ipairs(names) do
            local held = HELD .. name
            local revision, before = revision_of(held, name), before_first(held)
            local value = before and redis.call('LINDEX', held, revision - before) or ''
            found[#found + 1] = {name, value, revision}
        end
        from = '(' .. names[#names]
    end
    return found
end

function operations.delete(name, revision)
    local actual = revision_of(HELD, name)
    if revision then
        if actual ~= tonumber(revision) then return actual end
        if actual > tonumber(redis.call('GET', NEW_AFTER) or 0) then redis.call('SET', NEW_AFTER, revision) end
    end
    redis.call('ZREM', INDEX, name)
    redis.call('HDEL', REVISIONS, name)
    redis.call('DEL', HELD)
    hint(name)
    return actual
end

return operations[ARGV[1]](ARGV[2], ARGV[3], ARGV[4])
