# Private subnets, one for each zone, without any way to the internet: hosts reach AWS through the module
# `endpoints`.

locals {
  subnets = { for place, zone in var.zones : zone => cidrsubnet(var.cidr, 4, place) }
}

resource "aws_vpc" "this" {
  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true

  tags = { Name = var.name }
}

# Nothing may use the group that AWS makes: it lets everything through.
resource "aws_default_security_group" "this" {
  vpc_id = aws_vpc.this.id
}

resource "aws_subnet" "this" {
  for_each = local.subnets

  vpc_id                  = aws_vpc.this.id
  availability_zone       = each.key
  cidr_block              = each.value
  map_public_ip_on_launch = false

  tags = { Name = "${var.name}-${each.key}", "for-use-with-amazon-emr-managed-policies" = "true" }
}

resource "aws_route_table" "this" {
  vpc_id = aws_vpc.this.id

  tags = { Name = var.name }
}

resource "aws_route_table_association" "this" {
  for_each = aws_subnet.this

  subnet_id      = each.value.id
  route_table_id = aws_route_table.this.id
}

# Who connected to whom: what an investigation begins with.

resource "aws_cloudwatch_log_group" "flows" {
  name              = "/lowtide/${var.name}/flows"
  retention_in_days = var.log_days
  kms_key_id        = var.key_arn
}

resource "aws_iam_role" "flows" {
  name = "${var.name}-flows"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "vpc-flow-logs.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy" "flows" {
  name = "write"
  role = aws_iam_role.flows.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid      = "WriteLog"
      Effect   = "Allow"
      Action   = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
      Resource = [aws_cloudwatch_log_group.flows.arn, "${aws_cloudwatch_log_group.flows.arn}:*"]
    }]
  })
}

resource "aws_flow_log" "this" {
  vpc_id          = aws_vpc.this.id
  traffic_type    = "ALL"
  log_destination = aws_cloudwatch_log_group.flows.arn
  iam_role_arn    = aws_iam_role.flows.arn

  tags = { Name = var.name }
}
