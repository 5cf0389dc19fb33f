-- Which text of the functions is installed: another text replaces them at the next start, whether or not tables change with it.
CREATE TABLE fairlane.functions (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    hash text NOT NULL
);
