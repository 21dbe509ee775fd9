variable "name" {
  description = "The network's name."
  type        = string
}

variable "cidr" {
  description = "Its addresses."
  type        = string
}

variable "zones" {
  description = "The availability zones that get a subnet each."
  type        = list(string)
}

variable "log_days" {
  description = "How many days the log of connections is kept."
  type        = number
}

variable "key_arn" {
  description = "The key that encrypts that log."
  type        = string
}
