-- Run as the superuser before this version first starts the embedded server. The broker is not a superuser: an SQL injection
-- could otherwise read files and start programs as the server's user.
DO $$
DECLARE
    v_object record;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'fairlane') THEN
        CREATE ROLE fairlane LOGIN;
    END IF;
    ALTER DATABASE postgres OWNER TO fairlane;
    -- Objects that an earlier version created as the superuser.
    FOR v_object IN
        SELECT format('SCHEMA %I', nspname) AS name FROM pg_namespace WHERE nspname = 'fairlane'
        UNION ALL
        SELECT format('%s %s', CASE relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.oid::regclass)
        FROM pg_class c
        WHERE relnamespace = to_regnamespace('fairlane') AND relkind IN ('r', 'v', 'S')
            AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'i')
        UNION ALL
        SELECT format('ROUTINE %s', p.oid::regprocedure) FROM pg_proc p WHERE pronamespace = to_regnamespace('fairlane')
    LOOP
        EXECUTE 'ALTER ' || v_object.name || ' OWNER TO fairlane';
    END LOOP;
END
$$;
