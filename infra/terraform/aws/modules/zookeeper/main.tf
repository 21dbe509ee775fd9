# An ensemble of ZooKeeper servers. Who may change a node is up to whom it belongs to: digest ACLs.

data "aws_ssm_parameter" "image" {
  name = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64"
}

locals {
  numbers = { for place, host in var.hosts : host => place + 1 }
  subnets = { for place, host in var.hosts : host => var.network.subnets[place % length(var.network.subnets)] }
  # A server that is replaced keeps its address, as the others and the clients know it by that.
  addresses = { for host in var.hosts : host => aws_network_interface.this[host].private_ip }
  servers   = [for host, number in local.numbers : "server.${number}=${local.addresses[host]}:2888:3888"]
}

resource "aws_security_group" "this" {
  name        = "${var.network.name}-zookeeper"
  description = "ZooKeeper servers"
  vpc_id      = var.network.vpc_id

  tags = { Name = "${var.network.name}-zookeeper" }
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = var.clients

  security_group_id            = aws_security_group.this.id
  description                  = "Clients on ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = 2181
  to_port                      = 2181
  referenced_security_group_id = each.value
}

resource "aws_vpc_security_group_ingress_rule" "quorum" {
  for_each = { quorum = 2888, election = 3888 }

  security_group_id            = aws_security_group.this.id
  description                  = "The servers' ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  referenced_security_group_id = aws_security_group.this.id
}

resource "aws_vpc_security_group_egress_rule" "quorum" {
  for_each = { quorum = 2888, election = 3888 }

  security_group_id            = aws_security_group.this.id
  description                  = "The servers' ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  referenced_security_group_id = aws_security_group.this.id
}

resource "aws_vpc_security_group_egress_rule" "s3" {
  security_group_id = aws_security_group.this.id
  description       = "Software from S3"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  prefix_list_id    = var.s3_prefix_list
}

resource "aws_iam_role" "this" {
  name = "${var.network.name}-zookeeper"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy" "this" {
  name = "software"
  role = aws_iam_role.this.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "ReadSoftware"
        Effect   = "Allow"
        Action   = ["s3:GetObject"]
        Resource = ["${var.bucket.arn}/${var.software.object}"]
      },
      {
        Sid       = "DecryptSoftware"
        Effect    = "Allow"
        Action    = ["kms:Decrypt"]
        Resource  = var.bucket.key_arns
        Condition = { StringLike = { "kms:ViaService" = "s3.*.amazonaws.com" } }
      },
    ]
  })
}

resource "aws_iam_instance_profile" "this" {
  name = "${var.network.name}-zookeeper"
  role = aws_iam_role.this.name
}

# A server's address outlives the host: AWS picks a free one of the subnet, once.
resource "aws_network_interface" "this" {
  for_each = local.numbers

  description     = "ZooKeeper server ${each.value}"
  subnet_id       = local.subnets[each.key].id
  security_groups = [aws_security_group.this.id]

  tags = { Name = "${var.network.name}-${each.key}" }
}

# What the servers know outlives the hosts too.
resource "aws_ebs_volume" "this" {
  for_each = local.numbers

  availability_zone = local.subnets[each.key].zone
  size              = var.disk_gb
  type              = "gp3"
  encrypted         = true
  kms_key_id        = var.bucket.key_arn

  tags = { Name = "${var.network.name}-${each.key}" }

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_volume_attachment" "this" {
  for_each = local.numbers

  device_name                    = "/dev/sdf"
  volume_id                      = aws_ebs_volume.this[each.key].id
  instance_id                    = aws_instance.this[each.key].id
  stop_instance_before_detaching = true
}

resource "aws_instance" "this" {
  for_each = local.numbers

  ami                         = data.aws_ssm_parameter.image.insecure_value
  instance_type               = var.instance_type
  iam_instance_profile        = aws_iam_instance_profile.this.name
  ebs_optimized               = true
  monitoring                  = true
  user_data_replace_on_change = true
  user_data = templatefile("${path.module}/user-data.sh.tftpl", {
    archive = "s3://${var.bucket.name}/${var.software.object}"
    sha256  = var.software.sha256
    number  = each.value
    config  = templatefile("${path.module}/zoo.cfg.tftpl", { servers = length(var.hosts) > 1 ? local.servers : [] })
  })

  primary_network_interface {
    network_interface_id = aws_network_interface.this[each.key].id
  }

  metadata_options {
    http_endpoint = "enabled"
    http_tokens   = "required"
  }

  root_block_device {
    encrypted   = true
    kms_key_id  = var.bucket.key_arn
    volume_type = "gp3"
  }

  tags = { Name = "${var.network.name}-${each.key}" }

  lifecycle {
    # A newer image replaces one server after the other when one asks for it (-replace), never all at once.
    ignore_changes = [ami]
  }
}
