-- Health of AccountPools, CircuitPolicies and BridgePolicies for Argo CD. README.md
-- beside this file says how to install it; test/gitops runs it over sample resources.
--
-- The order matters. Paused comes first: it is a wish, and nothing else will change
-- until it ends. Then whether the status is about this generation at all: before the
-- operator has looked at a new manifest, what failed or waited belongs to the old one.

local function condition(name)
  if obj.status == nil or obj.status.conditions == nil then
    return nil
  end
  for _, c in ipairs(obj.status.conditions) do
    if c.type == name then
      return c
    end
  end
  return nil
end

local function is(name, status)
  local c = condition(name)
  return c ~= nil and c.status == status
end

local function answer(status, message)
  return { status = status, message = message }
end

local function words(name, default)
  local c = condition(name)
  if c == nil or c.message == nil or c.message == "" then
    return default
  end
  return c.message
end

if is("Paused", "True") then
  return answer("Suspended", words("Paused", "spec.management is Paused"))
end

local seen = obj.status ~= nil and obj.status.observedGeneration or nil
if seen == nil or (obj.metadata.generation ~= nil and seen < obj.metadata.generation) then
  return answer("Progressing", "The operator has not looked at this generation yet")
end

for _, name in ipairs({ "Reconciling", "UpToDate" }) do
  local c = condition(name)
  if c ~= nil and c.reason == "PromotionPending" then
    return answer("Suspended", words(name, "A new slot is ready and waits to be promoted"))
  end
end

if is("Stalled", "True") then
  return answer("Degraded", words("Stalled", "It cannot go on without a change"))
end

if is("Reconciling", "True") then
  return answer("Progressing", words("Reconciling", "A change is under way"))
end

if is("Ready", "True") then
  return answer("Healthy", words("Ready", "Ready"))
end

-- Not ready, and nothing is under way that would make it so: a reference that does not
-- exist, or a spec that is not accepted.
if is("Ready", "False") then
  -- What the operator waits for by itself, and what most often is there soon.
  local reason = condition("Ready").reason
  if reason == "ConfigPending" or reason == "NoReports" or reason == "NoReadyReplicas" then
    return answer("Progressing", words("Ready", "Not ready yet"))
  end
  return answer("Degraded", words("Ready", "Not ready"))
end

return answer("Progressing", words("Ready", "Not ready yet"))
