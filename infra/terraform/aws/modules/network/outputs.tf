output "network" {
  description = "The network, as the other modules take it."
  value = {
    name    = var.name
    vpc_id  = aws_vpc.this.id
    cidr    = var.cidr
    subnets = [for zone in var.zones : { id = aws_subnet.this[zone].id, cidr = local.subnets[zone], zone = zone }]
  }

  depends_on = [aws_route_table_association.this, aws_vpc_endpoint.s3, aws_vpc_endpoint.this]
}

output "s3_prefix_list" {
  description = "The addresses of S3, for security groups."
  value       = aws_vpc_endpoint.s3.prefix_list_id
}
