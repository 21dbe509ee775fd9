# All rules of the ruleset that tflint comes with.
plugin "terraform" {
  enabled = true
  preset  = "all"
}
