output "network" {
  description = "The network, once its endpoints are there: hosts start after that."
  value       = var.network

  precondition {
    condition     = length(distinct(var.network.subnets[*].zone)) == length(var.network.subnets)
    error_message = "Two of the subnets are in one availability zone: give one of each."
  }

  depends_on = [aws_vpc_endpoint.s3, aws_vpc_endpoint.this, aws_vpc_security_group_ingress_rule.this]
}

output "s3_prefix_list" {
  description = "The addresses of S3, for security groups."
  value       = data.aws_prefix_list.s3.id
}

output "services" {
  description = "The services that have an endpoint here."
  value       = concat(keys(aws_vpc_endpoint.this), length(aws_vpc_endpoint.s3) > 0 ? ["s3"] : [])
}
