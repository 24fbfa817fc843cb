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
  local row, has, served, waiting, begun, most, front = {}, {}, {}, {}, {}, 256, 1
  local members = redis.call('HLEN', leases) > SAMPLE and redis.call('HRANDFIELD', leases, SAMPLE)
    or redis.call('HKEYS', leases)
  local all = #members
  for _, whose in ipairs(all > 0 and redis.call('HMGET', SHARES, unpack(members)) or {}) do
    if whose then
      whose = person_of(whose)
      has[whose] = (has[whose] or 0) + 1
    end
  end

  local function look(from, count)
    local found = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'WITHSCORES', 'LIMIT', from, count)
    local names, ask = {}, {}
    for i = 1, #found, 2 do
      names[#names + 1] = found[i]
    end
    if #names == 0 then return end
    local owners, lost = redis.call('HMGET', SHARES, unpack(names)), redis.call('HMGET', leases, unpack(names))
    for i, member in ipairs(names) do
      local one, whose = {member = member, due = tonumber(found[2 * i]), lost = lost[i]}, owners[i]
      one.gone = left_alone(one.due, one.lost)
      if whose and whose ~= 'background' then
        one.whose = person_of(whose)
        one.keeps_place = one.lost or one.whose ~= whose
        if not served[one.whose] then
          served[one.whose] = 0
          ask[#ask + 1] = one.whose
        end
      end
      waiting[#waiting + 1] = one
    end
    for i, at in ipairs(#ask > 0 and redis.call('ZMSCORE', SERVED, unpack(ask)) or {}) do
      served[ask[i]] = tonumber(at or 0)
    end
  end

  -- Who has more than a share comes last; of the others who has waited longest, or whose person was served longest ago
  -- if that is shorter. Nobody behind one whose own time counts can come before it.
  local function choose()
    local best, best_over, best_at
    local cap = math.max(1, math.ceil(share_of * (all + 1)))
    while waiting[front] and waiting[front].gone do
      front = front + 1
    end
    for i = front, #waiting do
      local one = waiting[i]
      if not one.gone then
        local plain = not one.whose or one.keeps_place
        local over = not plain and (has[one.whose] or 0) >= cap
        local at = plain and one.due or math.max(one.due, served[one.whose])
        if not best or (best_over and not over) or (best_over == over and at < best_at) then
          best, best_over, best_at = one, over, at
        end
        if not best_over and best_at <= one.due then break end
      end
    end
    return best, best and not best_over and best_at <= waiting[#waiting].due
  end

  -- Whether this was done within so many ms; else it is now. What is much work is not done each time: all that waits may
  -- be one person's, and then it is in vain.
  local function lately(what, ms)
    if now - tonumber(redis.call('ZSCORE', SERVED, what) or 0) < ms then return true end
    redis.call('ZADD', SERVED, now, what)
    return false
  end

  -- The next one, or nil. It is out of the row, whether it can be taken or not.
  function row.next()
    if #waiting == 0 then
      look(0, few)
      for _, one in ipairs(waiting) do
        if one.gone and most == 256 then
          look(few, 1000 - few)
          few, most = 1000, 2000
        end
      end
    end
    local best, sure = choose()
    if not sure and #waiting == few and not lately('looked', 20) then
      local out = 0
      for _, one in ipairs(waiting) do
        if one.out then out = out + 1 end
      end
      write_leases()
      look(few - out, most - few)
      best = choose()
    end
    if best then
      best.gone, best.out = true, true
    end
    return best
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
    if #waiting < most or lately('made room', 50) then return end
    local stays = {}
    for i, one in ipairs(waiting) do
      if not one.gone and one.whose and not one.keeps_place then
        if stays[one.whose] then
          redis.call('ZADD', queue, now - 1 + i / (most + 1), one.member)
        end
        stays[one.whose] = true
      end
    end
  end

  return row
end
