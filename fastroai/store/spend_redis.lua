-- The rules of fastroai/usage/spend_rules.py, where Redis runs them as one atomic step.
--
-- KEYS  of one account, all in one hash slot:
--   account  hash    seen, closes (microseconds since 1970), charged, latest, places, keep (microseconds)
--   windows  hash    number -> "closes spent reserved limit set told": the limit of the latest claim, the one
--                    set by hand or "-", and the warnings as JSON: a list of [share, limit, id of the claim]
--   adjusted hash    id of a change -> the adjustment as JSON, with the number of its window
--   claims   hash    id -> "state amount window holder", the window 0 while it waits
--   within   hash    id -> id of the claim that the amount was taken from
--   line     sorted  ids that wait, by their places
--   leases   sorted  ids, by the end of their lease
--   holders  hash    holder -> number of its claims that have not lapsed
-- ARGV  operation, window, and the arguments of the operation
--
-- An amount is "microcents:rest", the rest in 1e-18 dollars: Lua's numbers are exact up to 2^53 only.

local ACCOUNT, WINDOWS, CLAIMS, LINE, LEASES, HOLDERS, ADJUSTED, WITHIN = unpack(KEYS)
local OPERATION, WINDOW = ARGV[1], ARGV[2]
local UNITS_PER_MICROCENT = 1e12
local HOUR, DAY = 3600e6, 86400e6
local CORRECTION_TIME = 7 * DAY
local WINDOWS_KEPT = 4
local LOOKS_ONLY = OPERATION == 'windows'

local function write(...)
  if not LOOKS_ONLY then
    return redis.call(...)
  end
end

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

-- Return the least amount that is at least this many millionths of another.
local function share_of(a, share)
  local limbs = {a[2] % 1e6, math.floor(a[2] / 1e6), a[1] % 1e6, math.floor(a[1] / 1e6) % 1e6, math.floor(a[1] / 1e12)}
  local product, carry = {}, 0
  for i, limb in ipairs(limbs) do
    local value = limb * share + carry
    product[i], carry = value % 1e6, math.floor(value / 1e6)
  end
  local part = {product[4] + product[5] * 1e6 + carry * 1e12, product[2] + product[3] * 1e6}
  return plus(part, {0, product[1] > 0 and 1 or 0})
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

local now, closes, charged, latest, places, keep
local windows, changed = {}, {}
local NOTHING = {0, 0}

local function window_from(text)
  local ends, spent, reserved, limit, set, told = string.match(text, '^(%d+) (%S+) (%S+) (%S+) (%S+) (.*)$')
  return {
    closes = tonumber(ends), spent = amount(spent), reserved = amount(reserved), limit = amount(limit),
    set = set ~= '-' and amount(set) or nil, told = cjson.decode(told)
  }
end

local function text_from(window)
  return table.concat({
    digits(window.closes), text_of(window.spent), text_of(window.reserved), text_of(window.limit),
    window.set and text_of(window.set) or '-', cjson.encode(window.told)
  }, ' ')
end

local function window_at(number)
  if windows[number] == nil then
    local text = number > 0 and redis.call('HGET', WINDOWS, digits(number))
    windows[number] = text and window_from(text) or false
  end
  return windows[number]
end

local function window_of(claim)
  changed[claim.window] = true
  return window_at(claim.window)
end

local function charged_window()
  changed[charged] = true
  return window_at(charged)
end

local function totals()
  local spent, reserved = NOTHING, NOTHING
  for number = charged, latest do
    local window = window_at(number)
    if window then
      spent, reserved = plus(spent, window.spent), plus(reserved, window.reserved)
    end
  end
  return spent, reserved
end

local claims_seen = {} -- what an operation that changes nothing would have made of them: texts, or false

local function get(id)
  local text = claims_seen[id]
  if text == nil then text = redis.call('HGET', CLAIMS, id) end
  if not text then
    return nil
  end
  local state, held, window, holder = string.match(text, '^(%a+) (%S+) (%d+) (.*)$')
  return {id = id, state = state, amount = amount(held), window = tonumber(window), holder = holder}
end

local function text_of_claim(claim)
  return claim.state .. ' ' .. text_of(claim.amount) .. ' ' .. digits(claim.window) .. ' ' .. claim.holder
end

local function keep_text(claim)
  claims_seen[claim.id] = text_of_claim(claim)
  write('HSET', CLAIMS, claim.id, claims_seen[claim.id])
end

local function put(claim, lease_until)
  keep_text(claim)
  write('ZADD', LEASES, digits(lease_until), claim.id)
end

local function remove(claim)
  claim.within = redis.call('HGET', WITHIN, claim.id)
  claims_seen[claim.id] = false
  write('HDEL', CLAIMS, claim.id)
  write('HDEL', WITHIN, claim.id)
  write('ZREM', LINE, claim.id)
  write('ZREM', LEASES, claim.id)
  if claim.state ~= 'lapsed' and (write('HINCRBY', HOLDERS, claim.holder, -1) or 1) <= 0 then
    write('HDEL', HOLDERS, claim.holder)
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

-- Return this amount to the claim from which this claim took its own, if there is such a claim.
local function give_back(claim, back)
  local other = claim.within and get(claim.within)
  if other and other.state == 'reserved' then
    other.amount = plus(other.amount, back)
    keep_text(other)
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

local function forget_windows(before, up_to)
  for number, window in pairs(windows) do
    if window and number <= up_to and window.closes <= before then
      write('HDEL', WINDOWS, digits(number))
      windows[number] = false
    end
  end
  local adjusted = redis.call('HGETALL', ADJUSTED)
  for i = 1, #adjusted, 2 do
    if windows[cjson.decode(adjusted[i + 1]).number] == false then
      write('HDEL', ADJUSTED, adjusted[i])
    end
  end
end

local function open_window(closes_at, limit)
  latest = latest + 1
  charged = latest
  windows[latest] = {closes = closes_at, spent = NOTHING, reserved = NOTHING, limit = limit, told = {}}
  changed[latest] = true
end

local function turn_to(closes_at)
  if closes_at == closes then
    return
  end
  local found = redis.call('HGETALL', WINDOWS)
  for i = 1, #found, 2 do
    window_at(tonumber(found[i]))
  end
  for number, window in pairs(windows) do
    if window and window.closes == closes_at then
      charged, closes = number, closes_at
      return
    end
  end
  if closes_at > closes then
    open_window(closes_at, window_at(latest).limit)
    forget_windows(now - keep, latest - WINDOWS_KEPT)
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
  local kept = redis.call('HMGET', ACCOUNT, 'seen', 'closes', 'charged', 'latest', 'places', 'keep')
  if not kept[1] then
    closes, latest, places, keep = end_of_window(now), 0, 0, 0
    open_window(closes, NOTHING)
    return create
  end
  local seen = tonumber(kept[1])
  closes, charged, latest = tonumber(kept[2]), tonumber(kept[3]), tonumber(kept[4])
  places, keep = tonumber(kept[5]), tonumber(kept[6])
  local over = now
  if now < seen and LOOKS_ONLY then
    over = seen -- they would be shifted by the difference
  elseif now < seen then
    shift_leases(now - seen)
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', LEASES, '-inf', digits(over))) do
    lease_over(get(id))
  end
  turn_to(end_of_window(now))
  return true
end

local function save()
  redis.call('HSET', ACCOUNT, 'seen', digits(now), 'closes', digits(closes), 'charged', digits(charged),
    'latest', digits(latest), 'places', digits(places), 'keep', digits(keep))
  for number in pairs(changed) do
    local window = windows[number]
    if window then
      redis.call('HSET', WINDOWS, digits(number), text_from(window))
    end
  end
  if closes == 0 then
    return
  end
  local last_lease = redis.call('ZREVRANGE', LEASES, 0, 0, 'WITHSCORES')[2]
  local unused_from = math.max(closes + keep, tonumber(last_lease or 0) + DAY)
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, digits(math.ceil((unused_from - now) / 1000)))
  end
end

-- Limits, and warnings about them

-- Return the shares of the limit about which this claim gives the warning.
local function reached_by(id, limit, shares)
  local spent, found, told, window = totals(), {}, {}, charged_window()
  for _, each in ipairs(window.told) do
    if each[2] == limit then
      told[each[1]] = each[3]
    end
  end
  for _, share in ipairs(shares) do
    if not told[share] and at_most(share_of(window.set or amount(limit), share), spent) then
      told[share] = id
      table.insert(window.told, {share, limit, id})
    end
    if told[share] == id then
      table.insert(found, share)
    end
  end
  return found
end

local function forget_what_is_not_reached()
  local spent, still, window = totals(), {}, charged_window()
  for _, each in ipairs(window.told) do
    if at_most(share_of(window.set or amount(each[2]), each[1]), spent) then
      table.insert(still, each)
    end
  end
  window.told = still
end

local function start_from_zero()
  for _, id in ipairs(redis.call('HKEYS', CLAIMS)) do
    local claim = get(id)
    if claim.state == 'lapsed' and claim.window >= charged then
      remove(claim)
    end
  end
  for number = charged, latest do
    if window_at(number) then
      changed[number] = true
      window_at(number).spent = NOTHING
    end
  end
end

-- Operations, each of which returns two flags and a list

local operations = {}

-- Take the amount of a waiting claim from another claim. Return false if that one does not have it.
local function draw(claim, asked, within)
  local other = within ~= '' and get(within)
  if not other or other.state ~= 'reserved' or other.window < charged or not at_most(asked, other.amount) then
    return false
  end
  other.amount = minus(other.amount, asked)
  keep_text(other)
  write('HSET', WITHIN, claim.id, within)
  write('ZREM', LINE, claim.id)
  claim.state, claim.window = 'reserved', other.window
  return true
end

function operations.reserve(id, asked, limit, lease, holder, keep_for, within)
  asked, limit, keep = amount(asked), amount(limit), tonumber(keep_for)
  charged_window().limit = limit
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
    elseif first and at_most(plus(plus(spent, reserved), asked), charged_window().set or limit) then
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

function operations.settle(id, cost, limit, ...)
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
  local shares = {}
  for i, share in ipairs({...}) do
    shares[i] = tonumber(share)
  end
  return true, true, reached_by(id, limit, shares)
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

function operations.adjust(id, changes, to, by, reason)
  local known = redis.call('HGET', ADJUSTED, id)
  if known then
    return true, true, {known}
  end
  local window = charged_window()
  local before, after = totals(), NOTHING
  if changes == 'limit' then
    before = window.set or window.limit
    window.set = to ~= '-' and amount(to) or nil
    after = window.set or window.limit
  else
    start_from_zero()
  end
  forget_what_is_not_reached()
  places = places + 1
  local adjustment = cjson.encode({
    id = id, changes = changes, from = text_of(before), to = text_of(after), by = by, reason = reason,
    at = digits(now), number = charged, place = places
  })
  redis.call('HSET', ADJUSTED, id, adjustment)
  return true, true, {adjustment}
end

function operations.windows(which)
  local oldest = charged
  if which == 'closed' then
    oldest = 1
    for _, number in ipairs(redis.call('HKEYS', WINDOWS)) do
      window_at(tonumber(number))
    end
  else
    window_at(charged)
  end
  local texts = {}
  for number, window in pairs(windows) do
    if window and number >= oldest and number <= charged then
      table.insert(texts, digits(number) .. ' ' .. text_from(window))
    end
  end
  return true, true, {texts, redis.call('HVALS', ADJUSTED)}
end

local granted, first, found = false, false, {}
if open(OPERATION == 'reserve') then
  granted, first, found = operations[OPERATION](unpack(ARGV, 3))
  if not LOOKS_ONLY then
    save()
  end
end
local spent, reserved = totals()
local set = window_at(charged).set
return {
  granted and 1 or 0, first and 1 or 0, digits(now), digits(closes),
  digits(spent[1]), digits(spent[2]), digits(reserved[1]), digits(reserved[2]),
  set and text_of(set) or '', OPERATION == 'reserve' and not granted and redis.call('HKEYS', HOLDERS) or {},
  found or {},
}
