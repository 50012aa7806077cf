-- The rules of fastroai/usage/spend_rules.py, where Redis runs them as one atomic step.
--
-- KEYS  of one account, all in one hash slot:
--   account  hash    seen, closes (microseconds since 1970), charged, places
--   windows  hash    number -> "closes spent reserved"
--   claims   hash    id -> "state amount window holder", the window 0 while it waits
--   within   hash    id -> id of the claim that the amount was taken from
--   line     sorted  ids that wait, by their places
--   leases   sorted  ids, by the end of their lease
--   holders  hash    holder -> number of its claims that have not lapsed
-- ARGV  operation, window, and what the operation takes
--
-- An amount is "microcents:rest", the rest in 1e-18 dollars: Lua's numbers are exact up to 2^53 only.

local ACCOUNT, WINDOWS, CLAIMS, LINE, LEASES, HOLDERS, WITHIN = unpack(KEYS)
local OPERATION, WINDOW = ARGV[1], ARGV[2]
local UNITS_PER_MICROCENT = 1e12
local HOUR, DAY = 3600e6, 86400e6
local CORRECTION_TIME, RETENTION = 7 * DAY, DAY
local WINDOWS_KEPT = 4

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

-- The account, its windows, and the claims on it

local now, closes, charged, places
local windows, changed, latest = {}, {}, 0
local NOTHING = {0, 0}

local function window_of(claim)
  changed[claim.window] = true
  return windows[claim.window]
end

local function totals()
  local spent, reserved = NOTHING, NOTHING
  for number, window in pairs(windows) do
    if number >= charged then
      spent, reserved = plus(spent, window.spent), plus(reserved, window.reserved)
    end
  end
  return spent, reserved
end

local function get(id)
  local text = redis.call('HGET', CLAIMS, id)
  if not text then
    return nil
  end
  local state, held, window, holder = string.match(text, '^(%a+) (%S+) (%d+) (.*)$')
  return {id = id, state = state, amount = amount(held), window = tonumber(window), holder = holder}
end

local function text_of_claim(claim)
  return claim.state .. ' ' .. text_of(claim.amount) .. ' ' .. digits(claim.window) .. ' ' .. claim.holder
end

local function put(claim, lease_until)
  redis.call('HSET', CLAIMS, claim.id, text_of_claim(claim))
  redis.call('ZADD', LEASES, digits(lease_until), claim.id)
end

local function remove(claim)
  claim.within = redis.call('HGET', WITHIN, claim.id)
  redis.call('HDEL', CLAIMS, claim.id)
  redis.call('HDEL', WITHIN, claim.id)
  redis.call('ZREM', LINE, claim.id)
  redis.call('ZREM', LEASES, claim.id)
  if claim.state ~= 'lapsed' and redis.call('HINCRBY', HOLDERS, claim.holder, -1) <= 0 then
    redis.call('HDEL', HOLDERS, claim.holder)
  end
end

local function take_out(claim)
  remove(claim)
  local window = window_of(claim)
  if window and claim.state == 'lapsed' then
    window.spent = minus(window.spent, claim.amount)
  elseif window then
    window.reserved = minus(window.reserved, claim.amount)
  end
end

-- Let the claim that this one was taken from, if there is one, reserve so much of it again.
local function give_back(claim, back)
  local other = claim.within and get(claim.within)
  if other and other.state == 'reserved' then
    other.amount = plus(other.amount, back)
    redis.call('HSET', CLAIMS, other.id, text_of_claim(other))
    local window = window_of(other)
    if window then
      window.reserved = plus(window.reserved, back)
    end
  end
end

local function lease_over(claim)
  if claim.state == 'lapsed' then
    remove(claim)
    return
  end
  take_out(claim)
  local window = window_of(claim)
  if claim.state == 'reserved' then
    give_back(claim, claim.amount)
  end
  if claim.state == 'sent' and window then
    window.spent = plus(window.spent, claim.amount)
    claim.state = 'lapsed'
    put(claim, now + CORRECTION_TIME)
  end
end

local function first_in_line()
  return redis.call('ZRANGE', LINE, 0, 0)[1]
end

local function open_window(closes_at)
  latest = latest + 1
  charged = latest
  windows[latest] = {closes = closes_at, spent = NOTHING, reserved = NOTHING}
  changed[latest] = true
  for number in pairs(windows) do
    if number <= latest - WINDOWS_KEPT then
      redis.call('HDEL', WINDOWS, digits(number))
      windows[number] = nil
    end
  end
end

local function turn_to(closes_at)
  if closes_at == closes then
    return
  end
  for number, window in pairs(windows) do
    if window.closes == closes_at then
      charged, closes = number, closes_at
      return
    end
  end
  if closes_at > closes then
    open_window(closes_at)
  end
  closes = closes_at
end

local function shift_leases(by)
  for _, id in ipairs(redis.call('ZRANGE', LEASES, 0, -1)) do
    redis.call('ZINCRBY', LEASES, digits(by), id)
  end
end

local function open(create)
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1e6 + tonumber(time[2])
  local kept = redis.call('HMGET', ACCOUNT, 'seen', 'closes', 'charged', 'places')
  if not kept[1] then
    closes, places = end_of_window(now), 0
    open_window(closes)
    return create
  end
  local seen = tonumber(kept[1])
  closes, charged, places = tonumber(kept[2]), tonumber(kept[3]), tonumber(kept[4])
  local found = redis.call('HGETALL', WINDOWS)
  for i = 1, #found, 2 do
    local number = tonumber(found[i])
    local ends, spent, reserved = string.match(found[i + 1], '^(%d+) (%S+) (%S+)$')
    windows[number] = {closes = tonumber(ends), spent = amount(spent), reserved = amount(reserved)}
    latest = math.max(latest, number)
  end
  if now < seen then
    shift_leases(now - seen)
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', LEASES, '-inf', digits(now))) do
    lease_over(get(id))
  end
  turn_to(end_of_window(now))
  return true
end

local function save()
  redis.call('HSET', ACCOUNT, 'seen', digits(now), 'closes', digits(closes), 'charged', digits(charged),
    'places', digits(places))
  for number in pairs(changed) do
    local window = windows[number]
    if window then
      local text = digits(window.closes) .. ' ' .. text_of(window.spent) .. ' ' .. text_of(window.reserved)
      redis.call('HSET', WINDOWS, digits(number), text)
    end
  end
  if closes == 0 then
    return
  end
  local last_lease = redis.call('ZREVRANGE', LEASES, 0, 0, 'WITHSCORES')[2]
  local unused_from = math.max(closes, tonumber(last_lease or 0)) + RETENTION
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, digits(math.ceil((unused_from - now) / 1000)))
  end
end

-- Operations, each of which returns two flags

local operations = {}

-- Take the amount of a claim that waits from another one. False if that does not have it.
local function draw(claim, asked, within)
  local other = within ~= '' and get(within)
  if not other or other.state ~= 'reserved' or other.window < charged or not at_most(asked, other.amount) then
    return false
  end
  other.amount = minus(other.amount, asked)
  redis.call('HSET', CLAIMS, within, text_of_claim(other))
  redis.call('HSET', WITHIN, claim.id, within)
  redis.call('ZREM', LINE, claim.id)
  claim.state, claim.window = 'reserved', other.window
  return true
end

function operations.reserve(id, asked, limit, lease, holder, within)
  asked = amount(asked)
  local claim = get(id)
  if claim and claim.state == 'reserved' and not at_most(asked, claim.amount) then
    take_out(claim)
    give_back(claim, claim.amount)
    claim = nil
  end
  if not claim then
    places = places + 1
    claim = {id = id, state = 'waiting', amount = asked, window = 0, holder = holder}
    redis.call('ZADD', LINE, digits(places), id)
    redis.call('HINCRBY', HOLDERS, holder, 1)
  end
  local first = claim.state ~= 'waiting' or first_in_line() == id
  if claim.state == 'reserved' then
    local window = window_of(claim)
    if window then
      window.reserved = minus(window.reserved, minus(claim.amount, asked))
    end
    claim.within = redis.call('HGET', WITHIN, id)
    give_back(claim, minus(claim.amount, asked))
    first = not claim.within
    claim.amount = asked
    put(claim, now + lease)
  elseif claim.state == 'waiting' then
    claim.amount = asked
    local spent, reserved = totals()
    if draw(claim, asked, within) then
      first = false -- nobody asks whether it is, as the other claim pays for it
    elseif first and at_most(plus(plus(spent, reserved), asked), amount(limit)) then
      claim.state, claim.window = 'reserved', charged
      local window = window_of(claim)
      window.reserved = plus(window.reserved, asked)
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
    if claim.state == 'waiting' then
      claim.window = charged
    end
    local window = window_of(claim)
    if window then
      window.spent = plus(window.spent, amount(cost))
    end
    if at_most(amount(cost), claim.amount) then
      give_back(claim, minus(claim.amount, amount(cost)))
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

function operations.end_leases(...)
  local dead = {}
  for _, holder in ipairs({...}) do
    dead[holder] = true
  end
  for _, id in ipairs(redis.call('HKEYS', CLAIMS)) do
    local claim = get(id)
    if claim.state ~= 'lapsed' and dead[claim.holder] then
      lease_over(claim)
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
local spent, reserved = totals()
return {
  granted and 1 or 0, first and 1 or 0, digits(now), digits(closes),
  digits(spent[1]), digits(spent[2]), digits(reserved[1]), digits(reserved[2]),
  OPERATION == 'reserve' and not granted and redis.call('HKEYS', HOLDERS) or {},
}
