-- In front of acquire.lua: which of the due turns comes next when slots are short.

-- How many turns that run are looked at; where there are more, these stand for all.
local SAMPLE = 128

local function person_of(whose)
  return string.byte(whose) == 43 and string.sub(whose, 2) or whose  -- without its '+'
end

-- A row of due turns at `now`, in ms with their fraction: who was served in this very ms was served. `left_alone(due,
-- lease)` says which are passed over; `write_leases()` takes those that began out of the queue. Of the row `few` are
-- looked at, or 256 when it is the time of none of those; where some are passed over, far more: they stand before the
-- others.
local function fair_row(queue, leases, now, share_of, left_alone, few, write_leases)
  local row, has, served, begun, most, front = {}, {}, {}, {}, 256, 1
  -- Of each in the row, in order: its member, since when it is due, the lease it had, whose turn it is (false: its chat's
  -- own), whether it keeps its place, whether it is left alone, whether it was taken out.
  local members, dues, losts, persons, keeps, alone, out = {}, {}, {}, {}, {}, {}, {}
  local running = redis.call('HLEN', leases) > SAMPLE and redis.call('HRANDFIELD', leases, SAMPLE)
    or redis.call('HKEYS', leases)
  local all, outs = #running, 0
  for _, whose in ipairs(all > 0 and redis.call('HMGET', SHARES, unpack(running)) or {}) do
    if whose then
      whose = person_of(whose)
      has[whose] = (has[whose] or 0) + 1
    end
  end

  local function look(from, count)
    local found = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'WITHSCORES', 'LIMIT', from, count)
    local before, names, ask = #members, {}, {}
    for i = 1, #found, 2 do
      names[#names + 1] = found[i]
    end
    if #names == 0 then return end
    local owners, had = redis.call('HMGET', SHARES, unpack(names)), redis.call('HMGET', leases, unpack(names))
    for i, member in ipairs(names) do
      local at, due, lost, whose = before + i, tonumber(found[2 * i]), had[i], owners[i]
      members[at], dues[at], losts[at], persons[at], keeps[at], out[at] = member, due, lost, false, false, false
      alone[at] = left_alone(due, lost)
      if whose and whose ~= 'background' then
        local person = person_of(whose)
        persons[at], keeps[at] = person, lost or person ~= whose
        if not served[person] then
          served[person] = 0
          ask[#ask + 1] = person
        end
      end
    end
    for i, at in ipairs(#ask > 0 and redis.call('ZMSCORE', SERVED, unpack(ask)) or {}) do
      served[ask[i]] = tonumber(at or 0)
    end
  end

  -- Who has more than a share comes last; of the others who has waited longest, or whose person was served longest ago
  -- if that is shorter. Nobody behind one whose own time counts can come before it. Its place, and whether nobody who was
  -- not looked at can come before it.
  local function choose()
    local best, best_over, best_at
    local cap = math.max(1, math.ceil(share_of * (all + 1)))
    while members[front] and (alone[front] or out[front]) do
      front = front + 1
    end
    for i = front, #members do
      if not (alone[i] or out[i]) then
        local due, person = dues[i], not keeps[i] and persons[i]
        local over = person and (has[person] or 0) >= cap
        local at = person and math.max(due, served[person]) or due
        if not best or (best_over and not over) or (best_over == over and at < best_at) then
          best, best_over, best_at = i, over, at
        end
        if not best_over and best_at <= due then break end
      end
    end
    return best, best and not best_over and best_at <= dues[#dues]
  end

  -- Whether this was done within so many ms; else it is now. What is much work is not done each time: all that waits may
  -- be one person's, and then it is in vain.
  local function lately(what, ms)
    if now - tonumber(redis.call('ZSCORE', SERVED, what) or 0) < ms then return true end
    redis.call('ZADD', SERVED, now, what)
    return false
  end

  local function some_left_alone()
    for i = 1, #members do
      if alone[i] then return true end
    end
  end

  -- The next one: its member, since when it is due, the lease it had, its person; or nil. It is out of the row, whether it
  -- can be taken or not.
  function row.next()
    if #members == 0 then
      look(0, few)
      if some_left_alone() then
        look(few, 1000 - few)
        few, most = 1000, 2000
      end
    end
    local best, sure = choose()
    if not sure and #members == few and not lately('looked', 20) then
      write_leases()
      look(few - outs, most - few)
      best = choose()
    end
    if not best then return nil end
    out[best], outs = true, outs + 1
    return members[best], dues[best], losts[best], persons[best]
  end

  -- A turn of this person has begun (nil: its chat's own).
  function row.begun(whose)
    all = all + 1
    if whose then
      has[whose] = (has[whose] or 0) + 1
    end
    if whose and whose ~= 'background' then
      served[whose] = now
      begun[#begun + 1] = now
      begun[#begun + 1] = whose
    end
  end

  -- Whether less than one in so many of what runs is of the background, or none is.
  function row.background_below(part)
    return (has.background or 0) < math.max(1, math.floor((all + 1) / part))
  end

  -- To be called at the end. Where more wait than can be looked at, of each person one stays, and the others go to the
  -- tail and make room.
  function row.leave()
    if #begun > 0 then
      redis.call('ZADD', SERVED, unpack(begun))
    end
    redis.call('ZREMRANGEBYSCORE', SERVED, 1000, now - 600000)
    redis.call('PEXPIRE', SERVED, 600000)
    if #members < most or lately('made room', 50) then return end
    local stays = {}
    for i, member in ipairs(members) do
      local person = persons[i]
      if person and not (alone[i] or out[i] or keeps[i]) then
        if stays[person] then
          redis.call('ZADD', queue, now - 1 + i / (most + 1), member)
        end
        stays[person] = true
      end
    end
  end

  return row
end
