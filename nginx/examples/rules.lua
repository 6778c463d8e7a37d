-- Made by specops 0.1.0 from the rollout chat: change its file and render again.
-- Rules of decide.lua. `source` is where a value comes from.

return {
  rollout = "chat",
  specops = "0.1.0",
  servers = { standard = 2, speculative = 1 },
  speculate = { value = true, source = "default" },
  min_tokens = { value = 32, source = "default" },
  min_tokens_unstreamed = { value = 64, source = "default" },
  long_tokens = { value = 256, source = "default" },
  otherwise = { value = "speculative", source = "default" },
  max_temperature = { value = 1.0, source = "default" },
  max_in_flight = { value = 8, source = "default" },
  classes = {
    {
      name = "code",
      content = "```|\\b(def|class|function) \\w+",
      speculate = { value = true, source = "default" },
    },
    {
      name = "legal",
      headers = { { name = "x-team", value = "legal" } },
      speculate = { value = false, source = "rollout file" },
    },
  },
  default = { speculate = { value = true, source = "default" } },
  unsupported = {
    { name = "min_p", source = "vLLM refuses it where it speculates" },
    { name = "logit_bias", source = "vLLM refuses it where it speculates" },
  },
  wanted = {
    max_completion_tokens = true,
    max_tokens = true,
    n = true,
    best_of = true,
    temperature = true,
    stream = true,
    min_p = true,
    logit_bias = true,
  },
  unsized = { ["/v1/completions"] = 16 },
  canary_key = "x-user",
  holdout = { value = 0.05, source = "default" },
  paths = { "/v1/", "/health", "/ping", "/version", "/tokenize", "/detokenize" },
  speculative_percent = 100.0,
}
