from warm_integrations.core.connection import *
