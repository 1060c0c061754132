-- What wrk asks for: a random page. ARGS[1] is the number of pages, all on one host.
local pages

function init(args)
  pages = tonumber(args[1])
end

function request()
  return wrk.format("GET", "/p/" .. math.random(0, pages - 1))
end
