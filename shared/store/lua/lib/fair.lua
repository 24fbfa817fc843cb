-- In front of acquire.lua: which of the due turns comes next when slots are short.

-- Sent in front of acquire.lua: which of the due turns comes next when slots are short.
--
-- At most this many running turns are looked at; where more run, a random sample stands for them.
local SAMPLE = 128

-- Removes the '+' (byte 43) that marks a turn which was given back.
local function person_of(fair_key)
  return string.byte(fair_key) == 43 and string.sub(fair_key, 2) or fair_key
end

-- Returns an object that hands out due turns in fair order at `now` (ms with a fraction, so that
-- "served in this very moment" can be told from "served before").
--   in_grace(due, lease)  true for a turn that must be skipped
--   write_leases()        stores the leases granted so far, which takes those turns out of the
--   queue
-- `first_count` turns are read at first, up to 256 when none of them may begin. Where some are
-- skipped far more are read, because the skipped ones stand in front of the others.
local function fair_row(queue, leases, now, share_of, in_grace, first_count, write_leases)
  local row, running_of, last_served, started, at_most, front = {}, {}, {}, {}, 256, 1
  -- One array per property, all with the same index, in the order of the queue: member, due time,
  -- the lease it had, the person whose turn it is (false: its chat's own), whether it keeps its
  -- place, whether it is skipped, whether it was handed out.
  local members, dues, old_leases, persons, keeps_place, skipped, removed = {}, {}, {}, {}, {}, {}, {}
  -- HRANDFIELD picks distinct members; HKEYS of a huge hash would take too long.
  local running = redis.call('HLEN', leases) > SAMPLE and redis.call('HRANDFIELD', leases, SAMPLE)
    or redis.call('HKEYS', leases)
  local all, removed_count = #running, 0
  -- How many turns each person, and the background, has running at this moment.
  for _, fair_key in ipairs(all > 0 and guarded('HMGET', FAIR_KEYS, unpack(running)) or {}) do
    if fair_key then
      fair_key = person_of(fair_key)
      running_of[fair_key] = (running_of[fair_key] or 0) + 1
    end
  end

  -- Reads `count` due turns of the queue from position `from` on, with owners and old leases.
  local function load_more(from, count)
    local found = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'WITHSCORES', 'LIMIT', from, count)
    local before, names, ask = #members, {}, {}
    for i = 1, #found, 2 do
      names[#names + 1] = found[i]
    end
    if #names == 0 then return end
    -- Two calls for the whole page instead of two for each member.
    local owners = guarded('HMGET', FAIR_KEYS, unpack(names)) or {}
    local held = redis.call('HMGET', leases, unpack(names))
    for i, member in ipairs(names) do
      local at, due, old_lease, fair_key = before + i, tonumber(found[2 * i]), held[i], owners[i]
      members[at], dues[at], old_leases[at] = member, due, old_lease
      persons[at], keeps_place[at], removed[at] = false, false, false
      skipped[at] = in_grace(due, old_lease)
      -- A turn that runs with an expired lease, or was given back, began already: it keeps its
      -- place.
      if fair_key and fair_key ~= 'background' then
        local person = person_of(fair_key)
        persons[at], keeps_place[at] = person, old_lease or person ~= fair_key
        -- Each person is asked for once, together below.
        if not last_served[person] then
          last_served[person] = 0
          ask[#ask + 1] = person
        end
      end
    end
    for i, at in ipairs(#ask > 0 and guarded('ZMSCORE', LAST_SERVED, unpack(ask)) or {}) do
      -- A time in the future is from before the clock fell back, and would put this person last.
      at = tonumber(at or 0)
      last_served[ask[i]] = at <= now and at or 0
    end
  end

  -- Picks the next turn. Whoever has more than a share of the slots comes last. Of the others the
  -- one that waited longest wins; a person who was served recently counts as waiting only since
  -- then. Returns its index, and whether no turn that was not read could come before it.
  local function choose()
    local best, best_over, best_at
    local cap = math.max(1, math.ceil(share_of * (all + 1)))
    -- Everything before `front` is used up: the next call need not walk over it again.
    while members[front] and (skipped[front] or removed[front]) do
      front = front + 1
    end
    for i = front, #members do
      if not (skipped[i] or removed[i]) then
        local due, person = dues[i], not keeps_place[i] and persons[i]
        -- `over`: this person already has `cap` running turns.
        local over = person and (running_of[person] or 0) >= cap
        -- The moment from which this turn's wait counts.
        local at = person and math.max(due, last_served[person]) or due
        if not best or (best_over and not over) or (best_over == over and at < best_at) then
          best, best_over, best_at = i, over, at
        end
        -- The queue is sorted by due time, and nobody's wait counts from earlier than that: no
        -- later turn can win any more.
        if not best_over and best_at <= due then break end
      end
    end
    return best, best and not best_over and best_at <= dues[#dues]
  end

  -- Returns whether `what` was done within the last `ms`; otherwise remembers that it is done now.
  -- Expensive work is not repeated each time: the whole queue may belong to one person, in which
  -- case it changes nothing. The marks live in LAST_SERVED, next to the persons.
  local function done_recently(what, ms)
    local ago = now - tonumber(guarded('ZSCORE', LAST_SERVED, what) or 0)
    -- Negative after the clock fell back.
    if ago >= 0 and ago < ms then return true end
    guarded('ZADD', LAST_SERVED, now, what)
    return false
  end

  -- Whether any turn that was read is in grace.
  local function some_skipped()
    for i = 1, #members do
      if skipped[i] then return true end
    end
  end

  -- Hands out the next turn: member, due time, old lease, person; nil when none is left. A turn is
  -- handed out once, whether it can be claimed or not.
  function row.next()
    if #members == 0 then
      load_more(0, first_count)
      -- Turns in grace fill the beginning of the queue: look far behind them at once.
      if some_skipped() then
        load_more(first_count, 1000 - first_count)
        first_count, at_most = 1000, 2000
      end
    end
    local best, sure = choose()
    -- A turn that was not read yet might win. The turns handed out so far must leave the queue
    -- first, otherwise the offset of the next page would be wrong.
    if not sure and #members == first_count and not done_recently('looked', 20) then
      write_leases()
      load_more(first_count - removed_count, at_most - first_count)
      best = choose()
    end
    if not best then return nil end
    removed[best], removed_count = true, removed_count + 1
    return members[best], dues[best], old_leases[best], persons[best]
  end

  -- Counts that a turn of this person (nil: its chat's own) was claimed.
  function row.started(fair_key)
    -- Shares are shares of what runs, which is one more now.
    all = all + 1
    if fair_key then
      running_of[fair_key] = (running_of[fair_key] or 0) + 1
    end
    if fair_key and fair_key ~= 'background' then
      last_served[fair_key] = now
      started[#started + 1] = now
      started[#started + 1] = fair_key
    end
  end

  -- Whether less than one in `part` of what runs belongs to the background, or nothing does.
  function row.background_below(part)
    return (running_of.background or 0) < math.max(1, math.floor((all + 1) / part))
  end

  -- Must be called last. Stores who was served. Where more turns wait than can be read, one of each
  -- person stays and the others move to the tail, so that turns of other people come into view.
  function row.finish()
    if #started > 0 then
      guarded('ZADD', LAST_SERVED, unpack(started))
    end
    -- Times of ten minutes ago mean nothing any more. Scores below 1000 are the background's
    -- counter.
    guarded('ZREMRANGEBYSCORE', LAST_SERVED, 1000, now - 600000)
    redis.call('PEXPIRE', LAST_SERVED, 600000)
    if #members < at_most or done_recently('made room', 50) then return end
    -- Persons of whom one turn was left in front.
    local stays = {}
    for i, member in ipairs(members) do
      local person = persons[i]
      if person and not (skipped[i] or removed[i] or keeps_place[i]) then
        if stays[person] then
          -- Due just before now, in the same order among each other: they lose their place, not
          -- their turn.
          redis.call('ZADD', queue, now - 1 + i / (at_most + 1), member)
        end
        stays[person] = true
      end
    end
  end

  return row
end
