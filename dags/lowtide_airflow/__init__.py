"""Provider for Apache Airflow."""
