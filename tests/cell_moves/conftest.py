from tests.cells.conftest import cells as cells
from tests.cells.conftest import home as home
from tests.cells.conftest import servers as servers
from tests.cells.conftest import urls as urls
