-- Orders with the name of their customer, as a topic of their own.
--
--     mainstem pipeline run examples/enriched_orders.sql
--
-- Customers are read as they stand when the pipeline starts; of those written twice, the last one counts.

CREATE SOURCE orders TOPIC 'orders' SCHEMA (id long, customer string, amount double);

CREATE STATIC SOURCE customers TOPIC 'customers' SCHEMA (id string, name string, _partition int, _offset long);

CREATE VIEW newest AS
SELECT id, max_by(name, struct(_partition, _offset)) AS name FROM customers GROUP BY id;

CREATE TOPIC 'orders.enriched' KEY customer AS
SELECT orders.id, orders.customer, newest.name, orders.amount
FROM orders LEFT JOIN newest ON orders.customer = newest.id;
