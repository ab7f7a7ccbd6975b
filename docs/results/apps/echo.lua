wrk.method = "POST"
wrk.path = "/echo"
wrk.body = string.rep("x", 10000)
