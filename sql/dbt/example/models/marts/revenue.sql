select c.id as customer, c.name, coalesce(sum(o.amount), 0) as amount
from {{ ref('customers') }} as c
left join {{ ref('stg_orders') }} as o on o.customer = c.id
group by c.id, c.name
