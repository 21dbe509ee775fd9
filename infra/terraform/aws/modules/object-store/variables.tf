variable "bucket" {
  description = "The bucket for snapshots, software and logs."
  type        = string
}

variable "key_arn" {
  description = "The key that encrypts it."
  type        = string
}

variable "noncurrent_days" {
  description = "How many days an object stays after it was overwritten or deleted."
  type        = number
}

variable "log_days" {
  description = "How many days logs are kept."
  type        = number
}
