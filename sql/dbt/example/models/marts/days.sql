{{ config(materialized='incremental', incremental_strategy='merge', unique_key='ordered_on') }}

select ordered_on, count(*) as orders, sum(amount) as amount
from {{ ref('stg_orders') }}
group by ordered_on
