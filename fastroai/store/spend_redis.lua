-- The rules of fastroai/usage/spend_rules.py, where Redis runs them as one atomic step.
--
-- KEYS  of one account, all in one hash slot:
--   account  hash    seen, closes (microseconds since 1970), spent, reserved, places
--   claims   hash    id -> "state amount closes"
--   line     sorted  ids that wait, by their places
--   leases   sorted  ids, by the end of their lease
-- ARGV  operation, window, and what the operation takes
--
-- An amount is "microcents:rest", the rest in 1e-18 dollars: Lua's numbers are exact up to 2^53 only.

local ACCOUNT, CLAIMS, LINE, LEASES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local OPERATION, WINDOW = ARGV[1], ARGV[2]
local UNITS_PER_MICROCENT = 1e12
local HOUR, DAY = 3600e6, 86400e6
local CORRECTION_TIME, RETENTION = 7 * DAY, DAY

local function digits(number)
  return string.format('%.0f', number)
end

-- Amounts

local function amount(text)
  local microcents, rest = string.match(text, '^(%d+):(%d+)$')
  return {tonumber(microcents), tonumber(rest)}
end

local function text_of(a)
  return digits(a[1]) .. ':' .. digits(a[2])
end

local function plus(a, b)
  local microcents, rest = a[1] + b[1], a[2] + b[2]
  if rest >= UNITS_PER_MICROCENT then
    return {microcents + 1, rest - UNITS_PER_MICROCENT}
  end
  return {microcents, rest}
end

local function minus(a, b)
  local microcents, rest = a[1] - b[1], a[2] - b[2]
  if rest < 0 then
    return {microcents - 1, rest + UNITS_PER_MICROCENT}
  end
  return {microcents, rest}
end

local function at_most(a, b)
  return a[1] < b[1] or (a[1] == b[1] and a[2] <= b[2])
end

-- Time

local function end_of_month(now)
  local lengths = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}
  local year, ends = 1970, 0
  while true do
    local leap = (year % 4 == 0 and year % 100 ~= 0) or year % 400 == 0
    for month, length in ipairs(lengths) do
      ends = ends + length * DAY
      if leap and month == 2 then
        ends = ends + DAY
      end
      if now < ends then
        return ends
      end
    end
    year = year + 1
  end
end

local function end_of_window(now)
  if WINDOW == 'hour' then
    return now - now % HOUR + HOUR
  elseif WINDOW == 'day' then
    return now - now % DAY + DAY
  elseif WINDOW == 'month' then
    return end_of_month(now)
  end
  return 0 -- total: no end
end

-- The account, and the claims on it

local now, closes, spent, reserved, places
local NOTHING = {0, 0}

local function get(id)
  local text = redis.call('HGET', CLAIMS, id)
  if not text then
    return nil
  end
  local state, held, closes_at = string.match(text, '^(%a+) (%S+) (%d+)$')
  return {id = id, state = state, amount = amount(held), closes = tonumber(closes_at)}
end

local function put(claim, lease_until)
  local text = claim.state .. ' ' .. text_of(claim.amount) .. ' ' .. digits(claim.closes)
  redis.call('HSET', CLAIMS, claim.id, text)
  redis.call('ZADD', LEASES, digits(lease_until), claim.id)
end

local function counts(claim)
  return claim.state ~= 'waiting' and claim.closes == closes
end

local function remove(claim)
  redis.call('HDEL', CLAIMS, claim.id)
  redis.call('ZREM', LINE, claim.id)
  redis.call('ZREM', LEASES, claim.id)
end

local function take_out(claim)
  remove(claim)
  if counts(claim) and claim.state == 'lapsed' then
    spent = minus(spent, claim.amount)
  elseif counts(claim) then
    reserved = minus(reserved, claim.amount)
  end
end

local function lease_over(claim)
  if claim.state == 'lapsed' then
    remove(claim)
    return
  end
  take_out(claim)
  if claim.state == 'sent' and counts(claim) then
    spent = plus(spent, claim.amount)
    claim.state = 'lapsed'
    put(claim, now + CORRECTION_TIME)
  end
end

local function first_in_line()
  return redis.call('ZRANGE', LINE, 0, 0)[1]
end

local function open(create)
  local time = redis.call('TIME')
  local clock = tonumber(time[1]) * 1e6 + tonumber(time[2])
  local kept = redis.call('HMGET', ACCOUNT, 'seen', 'closes', 'spent', 'reserved', 'places')
  if not kept[1] then
    now, closes, spent, reserved, places = clock, end_of_window(clock), NOTHING, NOTHING, 0
    return create
  end
  now = math.max(clock, tonumber(kept[1]))
  closes, places = tonumber(kept[2]), tonumber(kept[5])
  spent, reserved = amount(kept[3]), amount(kept[4])
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', LEASES, '-inf', digits(now))) do
    lease_over(get(id))
  end
  if closes > 0 and closes <= now then
    closes, spent, reserved = end_of_window(now), NOTHING, NOTHING
  end
  return true
end

local function save()
  redis.call('HSET', ACCOUNT, 'seen', digits(now), 'closes', digits(closes), 'spent', text_of(spent),
    'reserved', text_of(reserved), 'places', digits(places))
  if closes == 0 then
    return
  end
  local latest = redis.call('ZREVRANGE', LEASES, 0, 0, 'WITHSCORES')[2]
  local unused_from = math.max(closes, tonumber(latest or 0)) + RETENTION
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIREAT', key, digits(math.ceil(unused_from / 1000)))
  end
end

-- Operations, each of which returns two flags

local operations = {}

function operations.reserve(id, asked, limit, lease)
  asked = amount(asked)
  local claim = get(id)
  if claim and claim.state == 'reserved' and not at_most(asked, claim.amount) then
    take_out(claim)
    claim = nil
  end
  if not claim then
    places = places + 1
    claim = {id = id, state = 'waiting', amount = asked, closes = 0}
    redis.call('ZADD', LINE, digits(places), id)
  end
  local first = claim.state ~= 'waiting' or first_in_line() == id
  if claim.state == 'reserved' then
    if counts(claim) then
      reserved = minus(reserved, minus(claim.amount, asked))
    end
    claim.amount = asked
    put(claim, now + lease)
  elseif claim.state == 'waiting' then
    claim.amount = asked
    if first and at_most(plus(plus(spent, reserved), asked), amount(limit)) then
      claim.state, claim.closes = 'reserved', closes
      reserved = plus(reserved, asked)
      redis.call('ZREM', LINE, id)
    end
    put(claim, now + lease)
  end
  return claim.state ~= 'waiting' and at_most(asked, claim.amount), first
end

function operations.mark_sent(id, lease)
  local claim = get(id)
  if not claim or (claim.state ~= 'reserved' and claim.state ~= 'sent') then
    return false
  end
  claim.state = 'sent'
  put(claim, now + lease)
  return true
end

function operations.settle(id, cost)
  local claim = get(id)
  if claim then
    take_out(claim)
    if claim.state == 'waiting' or counts(claim) then
      spent = plus(spent, amount(cost))
    end
  end
end

function operations.renew(...)
  local claims = {...}
  for i = 1, #claims, 2 do
    local claim = get(claims[i])
    if claim and claim.state ~= 'lapsed' then
      redis.call('ZADD', LEASES, digits(now + claims[i + 1]), claim.id)
    end
  end
end

function operations.balance()
end

local granted, first = false, false
if open(OPERATION == 'reserve') then
  granted, first = operations[OPERATION](unpack(ARGV, 3))
  save()
end
return {
  granted and 1 or 0, first and 1 or 0, digits(now), digits(closes),
  digits(spent[1]), digits(spent[2]), digits(reserved[1]), digits(reserved[2]),
}
