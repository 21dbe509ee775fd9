# The way to AWS's services for hosts that have none to the internet.

data "aws_region" "this" {}

data "aws_prefix_list" "s3" {
  name = "com.amazonaws.${data.aws_region.this.region}.s3"
}

resource "aws_security_group" "this" {
  count = length(var.services) > 0 ? 1 : 0

  name        = "${var.network.name}-endpoints"
  description = "Endpoints of AWS services"
  vpc_id      = var.network.vpc_id

  tags = { Name = "${var.network.name}-endpoints" }
}

resource "aws_vpc_security_group_ingress_rule" "this" {
  count = length(var.services) > 0 ? 1 : 0

  security_group_id = aws_security_group.this[0].id
  description       = "HTTPS from this network"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  cidr_ipv4         = var.network.cidr
}

resource "aws_vpc_endpoint" "s3" {
  count = length(var.route_table_ids) > 0 ? 1 : 0

  vpc_id            = var.network.vpc_id
  service_name      = "com.amazonaws.${data.aws_region.this.region}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = var.route_table_ids

  tags = { Name = "${var.network.name}-s3" }
}

resource "aws_vpc_endpoint" "this" {
  for_each = var.services

  vpc_id              = var.network.vpc_id
  service_name        = "com.amazonaws.${data.aws_region.this.region}.${each.key}"
  vpc_endpoint_type   = "Interface"
  private_dns_enabled = true
  subnet_ids          = [for subnet in var.network.subnets : subnet.id]
  security_group_ids  = [aws_security_group.this[0].id]

  tags = { Name = "${var.network.name}-${each.key}" }
}
