-- A store of runs. Each call of this script is one operation, which Redis runs atomically.
--
-- KEYS: the index of all names (a sorted set, by name), and the list of one name: the position before its first
-- value, then its values. The list is never empty: a name without values has no list. The common beginning of the
-- lists' keys is also the channel on which changed names are announced. Last, the position after which new names
-- begin if they are set: the highest revision at which one was deleted.
-- ARGV: the operation, and its arguments. The write that Redis may refuse for lack of memory comes first, so that
-- either all writes are made or none.

local INDEX, HELD, NEW_AFTER = KEYS[1], KEYS[2], KEYS[3]
local AT_ONCE = 5000 -- arguments of a command; Lua takes no more than 8,000

-- A name in the index without a list has lost its values, of which it had one at least: somebody has removed them,
-- or the server has evicted them.
local function revision_of(held, name)
    local length = redis.call('LLEN', held)
    if length == 0 then return redis.call('ZSCORE', INDEX, name) and 1 or 0 end
    return tonumber(redis.call('LINDEX', held, 0)) + length - 1
end

local function digits(number) return string.format('%.0f', number) end

-- Announce a changed name. A user without the right to publish can still write; then followers poll.
local function hint(name)
    redis.pcall('PUBLISH', string.sub(HELD, 1, #HELD - #name), name)
end

local operations = {}

-- The values are the elements of ARGV from the fourth on: there may be more of them than a function can take.
function operations.append(name, revision)
    local actual = revision_of(HELD, name)
    if actual ~= tonumber(revision) or #ARGV < 4 then return actual end
    if redis.call('EXISTS', HELD) == 0 then
        redis.call('ZADD', INDEX, 0, name)
        redis.call('RPUSH', HELD, digits(actual))
    end
    for first = 4, #ARGV, AT_ONCE do
        redis.call('RPUSH', HELD, unpack(ARGV, first, math.min(first + AT_ONCE - 1, #ARGV)))
    end
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
    hint(name)
    return actual
end

function operations.read(name, after)
    local revision, now, values = revision_of(HELD, name), redis.call('TIME'), {}
    local before = tonumber(redis.call('LINDEX', HELD, 0))
    if before and revision > tonumber(after) then
        values = redis.call('LRANGE', HELD, math.max(after - before, 0) + 1, -1)
    end
    return {revision, now[1], now[2], values}
end

-- A name whose values are lost is listed with an empty value.
function operations.list(first, last, limit)
    local found, from = {}, '[' .. first
    while #found < tonumber(limit) do
        local names = redis.call('ZRANGEBYLEX', INDEX, from, '(' .. last, 'LIMIT', 0, limit - #found)
        if #names == 0 then return found end
        for _, name in ipairs(names) do
            local held = HELD .. name
            found[#found + 1] = {name, redis.call('LINDEX', held, -1) or '', revision_of(held, name)}
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
    redis.call('DEL', HELD)
    hint(name)
    return actual
end

return operations[ARGV[1]](ARGV[2], ARGV[3], ARGV[4])
