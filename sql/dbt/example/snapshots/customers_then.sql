{% snapshot customers_then %}
{{ config(target_schema=target.schema, unique_key='id', strategy='check', check_cols=['name']) }}
select * from {{ ref('customers') }}
{% endsnapshot %}
