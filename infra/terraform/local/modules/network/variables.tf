variable "name" {
  description = "The network's name."
  type        = string
}

variable "cidr" {
  description = "Its addresses."
  type        = string
}

variable "hosts" {
  description = "Its hosts by name: which address they have, what they find below /opt, and what they do not see."
  type = map(object({
    number = number
    mounts = optional(map(string), {})
    hidden = optional(list(string), [])
  }))
}
